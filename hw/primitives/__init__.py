"""Building blocks that know nothing of the accelerator: pipelines, memories, loop nests."""
