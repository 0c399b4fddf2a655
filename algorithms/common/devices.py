"""Where torch computes."""

import torch

__all__ = ["DEVICES", "best_device", "require_device"]

DEVICES = ("cpu", "cuda")


def best_device() -> str:
    """ "cuda" where torch has one, else "cpu"."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def require_device(device: str) -> list[str]:
    """What is wrong with the name of a device; empty if nothing is."""
    if device not in DEVICES:
        return [f"device must be one of {', '.join(DEVICES)}, not {device!r}"]
    if device == "cuda" and best_device() != "cuda":
        return ["device must be cpu: torch has no CUDA device here"]
    return []
