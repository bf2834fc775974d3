"""What becomes of gradients between the stages' backward and the optimizer: sums over ranks, ties, hooks, the norm."""
