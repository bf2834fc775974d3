"""Methods side by side at equal work and memory, and the solver's front beside theirs."""

from .comparison import Comparison, compare
from .front import Level, frontier, pareto
from .row import Row
from .variants import placement_text, variants, where_text

__all__ = ["Comparison", "Level", "Row", "compare", "frontier", "pareto", "placement_text", "variants", "where_text"]
