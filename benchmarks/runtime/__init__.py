"""Our executor beside PyTorch's own pipeline runtime: the same model, ranks, threads and op lists, in turns."""
