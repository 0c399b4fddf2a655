"""Optimizers of torch, as the accelerator's update and golden's take them."""

import math

import torch

from compiler.training.optimizer import optimizer_of
from golden.layers.optimizer import SGD, Adam, AdamW, BrakedSGD

__all__ = ["coefficients", "golden_optimizer", "require"]


def require(optimizer: torch.optim.Optimizer, model: torch.nn.Module) -> None:
    """Raise ValueError unless the accelerator can do what ``optimizer`` does with ``model``."""
    coefficients(optimizer)
    optimizer_of(optimizer)
    trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
    left = [n for n, p in model.named_parameters() if p.requires_grad and id(p) not in trained]
    if left:
        raise ValueError(
            f"the optimizer has no {left[0]}; it must have all parameters of the model, or they "
            "must have requires_grad=False"
        )


def coefficients(optimizer: torch.optim.Optimizer) -> dict[str, float]:
    """Learning rate, momentum, weight decay and braking as they are now, by name of
    :data:`compiler.training.compile.COEFFICIENTS`. Raises ValueError if groups of parameters
    differ in them, or if a number is not finite."""
    first, *others = optimizer.param_groups
    names = {"rate": "lr", "momentum": "momentum", "decay": "weight_decay"}
    found = {name: float(first.get(option, 0)) for name, option in names.items()}
    for group in others:
        for option in names.values():
            if group.get(option) != first.get(option):
                raise ValueError(
                    f"all parameters must have the same {option}, not {first[option]} and "
                    f"{group[option]}"
                )
    if hasattr(optimizer, "rho"):
        found["braking"], names["braking"] = float(optimizer.rho), "rho"
    for name, option in names.items():
        if not math.isfinite(found[name]):
            raise ValueError(f"{option} must be finite, not {found[name]}")
    return found


def golden_optimizer(
    optimizer: torch.optim.Optimizer, coefficients: dict[str, float]
) -> SGD | Adam | AdamW:
    """Golden's, with these coefficients."""
    kind = optimizer_of(optimizer)
    rate, decay = coefficients["rate"], coefficients["decay"]
    if kind.kind in ("adam", "adamw"):
        made = Adam if kind.kind == "adam" else AdamW
        return made(learning_rate=rate, weight_decay=decay, betas=kind.betas, epsilon=kind.epsilon)
    momentum = coefficients["momentum"]
    if kind.kind == "braked":
        return BrakedSGD(
            learning_rate=rate, momentum=momentum, weight_decay=decay,
            braking=coefficients["braking"],
        )  # fmt: skip
    return SGD(
        learning_rate=rate, momentum=momentum, weight_decay=decay,
        nesterov=kind.kind == "nesterov",
    )  # fmt: skip
