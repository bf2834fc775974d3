"""What `adaptpipe compare` prints and writes."""
