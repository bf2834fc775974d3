"""One stage on one rank: how its module is called, forward and backward, and what it keeps in between."""
