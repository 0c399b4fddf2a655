"""Which optimizer a network is trained with: a name, or an optimizer of torch."""

from dataclasses import dataclass
from typing import Any

import torch

from compiler.codegen.view import Coefficient
from compiler.errors import CompileError
from compiler.kernels.updates.rules import OPTIMIZERS, AdamRule, MomentumRule, Rule
from compiler.tensors.parameters import CORRECTIONS

__all__ = ["Optimizer", "optimizer_of", "require_parameters"]


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """An optimizer, without what the coefficient registers hold: rate, momentum, decay, braking.

    Members
    -------
    kind : one of :data:`~compiler.kernels.updates.rules.OPTIMIZERS`
    betas, epsilon : of ``adam`` and ``adamw``
    """

    kind: str = "sgd"
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        if self.kind not in OPTIMIZERS:
            raise CompileError(
                f"optimizer must be one of {', '.join(OPTIMIZERS)}, or one of torch.optim, not "
                f"{self.kind!r}"
            )
        if not all(0 <= beta < 1 for beta in self.betas):
            raise CompileError(
                f"optimizer {self.kind}: betas must be from 0 to less than 1, not {self.betas}"
            )
        # Its product with the least correction must not be flushed to zero.
        if not 2.0**-60 <= self.epsilon < 2.0**60:
            raise CompileError(
                f"optimizer {self.kind}: epsilon must be from 2**-60 to 2**60, not {self.epsilon}"
            )

    @property
    def slots(self) -> tuple[str, ...]:
        """Roles of the tensors that it keeps for each parameter."""
        if self.kind in ("adam", "adamw"):
            return (*AdamRule.slots, CORRECTIONS)
        return MomentumRule.slots

    def rule(
        self, *, rate: Coefficient, momentum: Coefficient, decay: Coefficient,
        braking: Coefficient,
    ) -> Rule:  # fmt: skip
        """What an update does; Adam has no use for ``momentum``, and only ``braked`` for
        ``braking``."""
        if self.kind in ("adam", "adamw"):
            return AdamRule(
                rate=rate, decay=decay, betas=self.betas, epsilon=self.epsilon,
                decoupled=self.kind == "adamw",
            )  # fmt: skip
        return MomentumRule(
            rate=rate, momentum=momentum, decay=decay, nesterov=self.kind == "nesterov",
            braking=braking if self.kind == "braked" else None,
        )  # fmt: skip


def optimizer_of(given: object) -> Optimizer:
    """The optimizer of a name, of a ``torch.optim.SGD``, ``Adam`` or ``AdamW``, or as it is.

    Learning rate, momentum and weight decay of torch's are left out: the host writes them to the
    coefficient registers. So it does with ``rho``, which makes a subclass of SGD a ``braked`` one
    (:class:`algorithms.braking.optimizer.BrakedSGD`). Adam with ``decoupled_weight_decay`` is
    AdamW.

    Raises
    ------
    CompileError
        for another one, or with options that are not supported.
    """
    if isinstance(given, Optimizer):
        return given
    if isinstance(given, str):
        return Optimizer(kind=given)
    kinds = {torch.optim.SGD: "sgd", torch.optim.Adam: "adam", torch.optim.AdamW: "adamw"}
    kind = "braked" if _is_braked(given) else kinds.get(type(given))
    if kind is None or not isinstance(given, torch.optim.Optimizer):
        raise CompileError(
            f"optimizer must be one of {', '.join(OPTIMIZERS)}, or a torch.optim.SGD, Adam or "
            f"AdamW, not {_in_a_line(given)}"
        )
    settings: dict[str, Any] = {}
    for group in given.param_groups:
        options = {key: value for key, value in group.items() if key in _SETTINGS}
        if settings and options != settings:
            raise CompileError(f"optimizer {kind}: all groups of parameters must have one setting")
        settings = options
    for name in ("amsgrad", "maximize", "dampening"):
        if settings.get(name):
            raise CompileError(f"optimizer {kind}: {name} must be off, not {settings[name]}")
    if kind == "braked":
        if settings["nesterov"]:
            raise CompileError("optimizer braked: nesterov must be off, not True")
        return Optimizer(kind=kind)
    if kind == "sgd":
        return Optimizer(kind="nesterov" if settings["nesterov"] else "sgd")
    kind = "adamw" if settings.get("decoupled_weight_decay", kind == "adamw") else "adam"
    return Optimizer(kind=kind, betas=tuple(settings["betas"]), epsilon=settings["eps"])


def require_parameters(given: object, model: torch.nn.Module) -> None:
    """Raise a :class:`CompileError` if an optimizer of torch lacks a parameter of ``model`` that
    is trainable, and names it: all of them are trained."""
    if not isinstance(given, torch.optim.Optimizer):
        return
    own = {id(parameter) for group in given.param_groups for parameter in group["params"]}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and id(parameter) not in own:
            raise CompileError(
                f"optimizer {type(given).__name__} does not have the parameter {name}; it must "
                "have all parameters of this model, or they must have requires_grad=False"
            )


def _in_a_line(given: object) -> str:
    text = repr(given)
    return type(given).__name__ if "\n" in text else text


def _is_braked(given: object) -> bool:
    return isinstance(given, torch.optim.SGD) and hasattr(given, "rho")


#: What of a group of parameters says how it is updated.
_SETTINGS = ("lr", "momentum", "dampening", "weight_decay", "nesterov", "betas", "eps", "amsgrad",
             "maximize", "decoupled_weight_decay")  # fmt: skip
