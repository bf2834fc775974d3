"""What fused backwards, ranges of weight units and micro-batch sizes are worth: `python -m benchmarks.granularity`."""
