"""What ranks did, or are planned to do: one form for both, its file for Perfetto, and where the two differ."""
