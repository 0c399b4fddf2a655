"""Fields of commands, as the tables of the encoding list them."""

from dataclasses import dataclass

__all__ = ["Field"]


@dataclass(frozen=True)
class Field:
    """One field of a command: ``width`` bits, two's complement if ``signed``.

    ``minimum`` is the least value the hardware accepts; ``enum`` names values.
    """

    name: str
    width: int
    doc: str
    signed: bool = False
    minimum: int | None = None
    enum: type | None = None

    @property
    def range(self):
        """Smallest and largest value that can be encoded."""
        if self.signed:
            return -(1 << (self.width - 1)), (1 << (self.width - 1)) - 1
        return self.minimum or 0, (1 << self.width) - 1
