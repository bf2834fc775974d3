"""The order in which the parts of the solver are asked, and the best of what they answer."""
