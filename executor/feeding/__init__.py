"""What stages are fed with beside messages: batch, target and keywords, cut into micro-batches and slices."""
