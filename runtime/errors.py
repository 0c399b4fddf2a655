"""What can go wrong on an accelerator, apart from what is asked of it."""

__all__ = ["AcceleratorError", "DifferenceFound", "PortError"]


class AcceleratorError(Exception):
    """A program did not come to its end; the text says how it ended and where."""


class PortError(AcceleratorError):
    """A serial port cannot be opened, or is none."""


class DifferenceFound(Exception):
    """The accelerator and the golden model differ.

    Members
    -------
    differences : list of :class:`~verif.networks.training_result.Difference`, the first wrong
        number of every tensor
    """

    def __init__(self, differences):
        self.differences = list(differences)
        super().__init__("\n".join(map(str, self.differences)))
