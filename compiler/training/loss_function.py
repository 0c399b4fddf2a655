"""Which loss a network is trained with: from a name, or a module of torch."""

from torch import nn

from compiler.errors import CompileError

from .batch_input import LOSSES, LossFunction

__all__ = ["loss_function"]


def loss_function(loss: object) -> LossFunction:
    """The loss of a name, of ``nn.CrossEntropyLoss``, ``nn.MSELoss`` or ``nn.BCEWithLogitsLoss``.

    Raises
    ------
    CompileError
        for another one, or with options that are not supported.
    """
    if isinstance(loss, str) and loss in LOSSES:
        return LossFunction(kind=loss)
    if not isinstance(loss, nn.CrossEntropyLoss | nn.MSELoss | nn.BCEWithLogitsLoss):
        raise CompileError(
            f"loss must be one of {', '.join(LOSSES)}, nn.CrossEntropyLoss(...), nn.MSELoss() or "
            f"nn.BCEWithLogitsLoss(), not {loss!r}"
        )
    if loss.reduction != "mean":
        raise CompileError(
            f"loss {type(loss).__name__}: reduction must be 'mean', not {loss.reduction!r}"
        )
    if isinstance(loss, nn.MSELoss):
        return LossFunction(kind="mean_squared_error")
    if isinstance(loss, nn.BCEWithLogitsLoss):
        for name in ("weight", "pos_weight"):
            if getattr(loss, name) is not None:
                raise CompileError(f"loss BCEWithLogitsLoss: {name} must be None")
        return LossFunction(kind="binary_cross_entropy")
    if loss.weight is not None:
        raise CompileError(
            "loss CrossEntropyLoss: classes cannot have weights; weight must be None"
        )
    return LossFunction(
        kind="cross_entropy",
        smoothing=float(loss.label_smoothing),
        ignore=None if loss.ignore_index is None else int(loss.ignore_index),
    )
