"""Messages between ranks: what one is made of, channels over gloo and NCCL, and the end of all channels on a rank."""
