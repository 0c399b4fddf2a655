"""The digits network learns with an echo of its head, beside plain backpropagation."""

from .beside_plain import BesidePlain, train_beside_plain

__all__ = ["ECHO", "train_echo"]

#: Steps of the head alone behind every batch.
ECHO = 4


def train_echo(config, **options) -> BesidePlain:
    """Train on the RTL; ``options`` as for :func:`train_beside_plain`."""
    return train_beside_plain(config, what="echoed", echo=ECHO, **options)
