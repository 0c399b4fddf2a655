"""Training spread over several processes, a stage of the network in each (docs/pipelines.md)."""
