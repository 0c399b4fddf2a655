"""Forward passes of ``torch.nn.Sequential``."""
