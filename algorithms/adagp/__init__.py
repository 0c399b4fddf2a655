"""ADA-GP in float32: predictor, gate, schedule, sources of gradients."""
