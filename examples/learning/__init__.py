"""Tasks that are learned to the end: on the accelerator for some batches, in golden for all."""
