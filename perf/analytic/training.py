"""Batches of training with ADA-GP, from cycles of products; speed-ups of schedules."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from golden.prediction.schedule import Phase, ScheduleConfig

from .flows import Array, cycles
from .shapes import Layer, Product

__all__ = ["VARIANTS", "Batches", "Machine", "batches"]

#: Designs with a predictor.
VARIANTS = ("low", "efficient", "max")
#: 180 PEs, and 80 more.
_ARRAY, _PREDICTOR_ARRAY = Array(12, 15), Array(8, 10)


@dataclass(frozen=True, kw_only=True)
class Machine:
    """An accelerator of the paper.

    Members
    -------
    flow : of the main array
    array, predictor_array : the second one is that of ``max``
    features : F, inputs of the predictor's linear layer
    """

    flow: str = "weight-stationary"
    array: Array = _ARRAY
    predictor_array: Array = _PREDICTOR_ARRAY
    features: int = 480


@dataclass(frozen=True, kw_only=True)
class Batches:
    """Cycles of a batch.

    Members
    -------
    plain : of backpropagation without ADA-GP
    learning : of Phase BP, in which the predictor learns
    predicted : of Phase GP
    """

    plain: int
    learning: int
    predicted: int

    @property
    def steady(self) -> float:
        """Speed-up B: one batch of each phase, for ever."""
        return 2 * self.plain / (self.learning + self.predicted)

    def training(self, schedule: ScheduleConfig, epochs: int) -> float:
        """Speed-up A: of a whole training, with its warm-up."""
        count = 60  # batches of an epoch: whole rounds of 1 to 4 batches of Phase GP and one of BP
        phases = list(schedule.phases(epochs, count))
        predicted = phases.count(Phase.GP)
        own = predicted * self.predicted + (len(phases) - predicted) * self.learning
        return len(phases) * self.plain / own


def batches(layers: Sequence[Layer], machine: Machine, variant: str, images: int) -> Batches:
    """Cycles of the three kinds of batches.

    The predictor's products for a layer are those of its linear layer, F × n for every output
    channel, and backward twice as many. ``max`` has an array for them: a layer's prediction goes on
    beside the next layer's forward pass, its training beside the backward pass of the layer below.
    ``low`` and ``efficient`` compute them on the main array, one after the other; they differ in
    traffic, which is not counted. The head is not predicted: its weight gradient is exact in Phase
    GP.

    Raises
    ------
    ValueError
        naming ``variant`` or the flow.
    """
    if variant not in VARIANTS:
        raise ValueError(f"variant must be one of {', '.join(VARIANTS)}, not {variant!r}")

    def main(product: Product) -> int:
        return cycles(machine.flow, product, machine.array)

    beside = variant == "max"
    own_array = machine.predictor_array if beside else machine.array

    def predictor(product: Product) -> int:
        return cycles(machine.flow, product, own_array)

    forward, backward, guess, learn = [], [], [], []
    for number, layer in enumerate(layers):
        forward.append(main(layer.forward(images)))
        down = main(layer.input_gradient(images)) if number else 0
        backward.append(main(layer.weight_gradient(images)) + down)
        if layer.head:
            head = main(layer.weight_gradient(images))
            guess.append(0)
            learn.append(0)
        else:
            guess.append(predictor(_linear(layer.outputs, machine.features, layer.size)))
            learn.append(
                predictor(_linear(machine.features, layer.outputs, layer.size))
                + predictor(_linear(layer.outputs, layer.size, machine.features))
            )
    plain = sum(forward) + sum(backward)
    if beside:
        through = _overlapped(forward, guess)
        learning = through + _overlapped(backward[::-1], learn[::-1])
    else:
        through = sum(forward) + sum(guess)
        learning = through + sum(backward) + sum(learn)
    return Batches(plain=plain, learning=learning, predicted=through + head)


def _linear(rows, depth, columns):
    return Product(rows=rows, depth=depth, columns=columns, times=1, pairs=rows * depth * columns,
                   filter_rows=1, output_rows=1, row_cycles=1)  # fmt: skip


def _overlapped(layers, beside):
    """The work beside a layer goes on while the next one is computed."""
    return layers[0] + sum(max(b, a) for a, (_, b) in zip(beside, pairwise(layers))) + beside[-1]
