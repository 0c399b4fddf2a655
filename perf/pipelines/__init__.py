"""Training spread over several devices, stage by stage: steps of a batch (Figure 20)."""
