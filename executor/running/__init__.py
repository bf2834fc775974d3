"""A program followed on one rank, step after step, with stages or with emulated ops."""
