"""Methods side by side at equal work and memory, and the solver's front beside theirs."""

from .comparison import Comparison, compare
from .front import frontier, pareto
from .level import Level
from .row import Row
from .variants import placement_text, variants, where_text

__all__ = ["Comparison", "Level", "Row", "compare", "frontier", "pareto", "placement_text", "variants", "where_text"]
