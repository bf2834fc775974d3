"""Which layers form which stage: even loads within memory, and whether anything fits."""
