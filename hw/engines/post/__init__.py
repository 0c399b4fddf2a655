"""POST: from the accumulators to the buffer."""
