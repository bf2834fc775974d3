"""PyTorch's schedules: their CSV read and written, and the proof that their messages end. No torch in here."""

from .exporting import Exported, export_csv
from .importing import Imported, import_csv

__all__ = ["Exported", "Imported", "export_csv", "import_csv"]
