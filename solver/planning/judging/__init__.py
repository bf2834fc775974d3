"""What plans are worth where the costs they were made with are wrong."""
