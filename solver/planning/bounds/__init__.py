"""How good a plan can be: bounds over every split, placement, division and order."""
