"""Running a schedule: weight-gradient queue, transport between ranks, and the start of local ranks."""
