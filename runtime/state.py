"""What training keeps from batch to batch, apart from any program."""

from dataclasses import dataclass, field

import numpy as np
import torch

__all__ = ["State"]


@dataclass(kw_only=True)
class State:
    """Numbers that are learned.

    Members
    -------
    weights : float32 arrays by torch's name: parameters and running statistics
    slots : role -> torch's name -> float32 array: the optimizer's numbers, e.g. "velocity"
    predictor : name of tensor -> codes; empty without a predictor
    """

    weights: dict[str, np.ndarray]
    slots: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    predictor: dict[str, np.ndarray] = field(default_factory=dict)

    @classmethod
    def of(cls, model: torch.nn.Module) -> "State":
        """The weights and statistics of a module."""
        return cls(
            weights={
                name: values.detach().cpu().numpy().astype(np.float32)
                for name, values in model.state_dict().items()
                if values.is_floating_point()
            }
        )

    def into(self, model: torch.nn.Module) -> None:
        """Give a module the weights and statistics."""
        found = model.state_dict()
        with torch.no_grad():
            for name, values in self.weights.items():
                found[name].copy_(torch.from_numpy(np.ascontiguousarray(values)))

    def plain(self) -> dict:
        """Tensors and dictionaries, which ``torch.save`` writes and ``torch.load`` reads with
        ``weights_only``."""
        return {
            "weights": _tensors(self.weights),
            "slots": {role: _tensors(values) for role, values in self.slots.items()},
            "predictor": _tensors(self.predictor),
        }

    @classmethod
    def restored(cls, plain: dict) -> "State":
        """What :meth:`plain` returned."""
        return cls(
            weights=_arrays(plain["weights"]),
            slots={role: _arrays(values) for role, values in plain["slots"].items()},
            predictor=_arrays(plain["predictor"]),
        )


def _tensors(arrays):
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}


def _arrays(tensors):
    return {name: tensor.numpy() for name, tensor in tensors.items()}
