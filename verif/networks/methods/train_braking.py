"""The digits network learns with braked gradients, beside plain backpropagation."""

from golden.layers.optimizer import BrakedSGD

from .beside_plain import BesidePlain, train_beside_plain

__all__ = ["BRAKING", "train_braking"]

#: How much gradients are braked.
BRAKING = 1.0


def train_braking(config, **options) -> BesidePlain:
    """Train on the RTL; ``options`` as for :func:`train_beside_plain`."""
    return train_beside_plain(config, what="braked", change=_braked, **options)


def _braked(optimizer) -> BrakedSGD:
    names = ("learning_rate", "momentum", "weight_decay")
    return BrakedSGD(braking=BRAKING, **{name: getattr(optimizer, name) for name in names})
