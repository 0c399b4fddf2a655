"""Which loss a network is trained with: a name, or a module of torch."""

from dataclasses import dataclass

from torch import nn

__all__ = ["LOSSES", "LossFunction"]

LOSSES = ("cross_entropy", "mean_squared_error", "binary_cross_entropy")


@dataclass(frozen=True, kw_only=True)
class LossFunction:
    """A loss.

    Members
    -------
    kind : one of :data:`LOSSES`
    smoothing, ignore : of cross-entropy, see :func:`golden.layers.label_loss.label_cross_entropy`
    """

    kind: str
    smoothing: float = 0.0
    ignore: int | None = None

    @classmethod
    def of(cls, loss) -> "LossFunction":
        """That of a name, ``nn.CrossEntropyLoss``, ``nn.MSELoss`` or ``nn.BCEWithLogitsLoss``; a
        ValueError for others."""
        if isinstance(loss, str) and loss in LOSSES:
            return cls(kind=loss)
        if type(loss) not in (nn.CrossEntropyLoss, nn.MSELoss, nn.BCEWithLogitsLoss):
            raise ValueError(
                f"loss must be one of {', '.join(LOSSES)}, nn.CrossEntropyLoss, nn.MSELoss or "
                f"nn.BCEWithLogitsLoss, not {loss!r}"
            )
        name = type(loss).__name__
        if loss.reduction != "mean" or getattr(loss, "weight", None) is not None:
            raise ValueError(f"{name} must have reduction='mean' and no weight")
        if getattr(loss, "pos_weight", None) is not None:
            raise ValueError(f"{name} must have no pos_weight")
        if isinstance(loss, nn.MSELoss):
            return cls(kind="mean_squared_error")
        if isinstance(loss, nn.BCEWithLogitsLoss):
            return cls(kind="binary_cross_entropy")
        return cls(
            kind="cross_entropy",
            smoothing=float(loss.label_smoothing),
            ignore=None if loss.ignore_index is None else int(loss.ignore_index),
        )
