"""The LOSS command: the fields behind the header."""

import enum

from hw.config import BUFFER_ADDRESS_WIDTH

from .field import BUFFER_ADDRESS_NOTE, Field

__all__ = ["LOSS", "Loss"]


class Loss(enum.IntEnum):
    """What LOSS computes (docs/training.md, "Loss")."""

    CROSS_ENTROPY = 0
    SQUARED_ERROR = 1


_A = BUFFER_ADDRESS_WIDTH

#: Fields in order from the least significant bit behind the header. See docs/loss.md.
LOSS = (
    Field("loss", 1, "softmax cross-entropy or squared error", enum=Loss),
    Field("first", 1, "first command of a batch: sums and the count of correct answers start at 0"),
    Field("last", 1, "last command of a batch: write the value row"),
    Field("x_wide", 1, "outputs of the network are float32, else operands"),
    Field("target_wide", 1, "targets are float32, else operands; labels are 32 bits anyway"),
    Field("row_count", 16, "images (cross-entropy) or rows of numbers (squared error)", minimum=1),
    Field("row_length", 16, "classes, or numbers in a row", minimum=1),
    Field("x_address", _A, f"first row of outputs; each starts with a word; {BUFFER_ADDRESS_NOTE}"),
    Field("x_stride", 16, "words from one row of outputs to the next"),
    Field(
        "target_address",
        _A,
        "first row of targets, or of labels (a row has one integer of 32 bits); each row starts "
        f"with the word behind the one before; {BUFFER_ADDRESS_NOTE}",
    ),
    Field(
        "gradient_address",
        _A,
        "first row of the gradient (operands, the last word filled up with zeros); each row starts "
        f"with the word behind the one before; {BUFFER_ADDRESS_NOTE}",
    ),
    Field(
        "value_address",
        _A,
        "value row, if last: loss and number of correct answers, both float32; "
        f"{BUFFER_ADDRESS_NOTE}",
    ),
    Field("gradient_scale", 32, "float32: 1 / images, or 2 / numbers"),
    Field("value_scale", 32, "float32: 1 / images, or 1 / numbers"),
)
