"""What each rank does, made from a schedule and proved to end. No torch in here."""
