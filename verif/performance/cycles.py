"""Where the cycles of ADA-GP go: per layer, phase and variant, from the RTL's own counters.

A batch of backpropagation and one of Phase GP run on every variant, and one of plain
backpropagation on ``baseline``, all compared with golden. What a layer takes is read from the
memory: the cycle in which the last beat of each tensor was written ends the step that writes it.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn

from golden.layers.optimizer import SGD
from golden.prediction.schedule import Phase, ScheduleConfig, Stage
from hw.config import make_config
from verif.networks.adagp_run import AdaGPRun
from verif.networks.training_result import Batch
from verif.networks.training_run import TrainingRun

__all__ = [
    "BatchCycles", "Segment", "VggLike", "exposed", "hidden", "late", "measure", "memory_stall",
    "speed_ups", "traffic",
]  # fmt: skip

#: Schedules of section 6: 90 epochs as the paper trains, 10 of them warm-up; and a steady 1:1.
EPOCHS, EPOCH_BATCHES = 90, 60
STEADY = ScheduleConfig(warm_up=0, ladder=(Stage(gp=1, bp=1, epochs=None),))

PRODUCTS = ("convolution", "depthwise", "linear")
#: Cycles until the memory answers.
LATENCY = 30


class VggLike(nn.Module):
    """Pairs of 3 x 3 convolutions with pooling behind them, and two linear layers, as VGG.

    Parameters
    ----------
    widths : of the pairs
    size : height and width of the input, which has 3 channels
    """

    def __init__(self, widths=(16, 32, 64), size=16, hidden=64, classes=10):
        super().__init__()
        layers, channels = [], 3
        for width in widths:
            for _ in range(2):
                layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
                channels = width
            layers.append(nn.MaxPool2d(2))
            size //= 2
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Linear(channels * size * size, hidden), nn.ReLU(),
            nn.Linear(hidden, classes),
        )  # fmt: skip

    def forward(self, x):
        return self.classifier(self.features(x))


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A product with what follows it up to the next one, in one direction.

    Members
    -------
    layer, direction : of the product; "forward" or "backward"
    begin, end : cycle of the run
    memory_stall : cycles in which the main array had a command, but waited for weights or the
        buffer
    array : cycles in which the main array was given a vector of the network
    predictor : the same for the predictor, in either array
    beside : cycles that the predictor's own core took for the layer
    """

    layer: str
    direction: str
    begin: int
    end: int
    memory_stall: int
    array: int
    predictor: int
    beside: int = 0

    @property
    def cycles(self):
        return self.end - self.begin


@dataclass(frozen=True, kw_only=True)
class BatchCycles:
    """One batch on the RTL.

    Members
    -------
    variant, part : "bp" or "gp"
    cycles : from start to interrupt
    segments : list of :class:`Segment`; what is behind the last one is the predictor's alone
    read_bytes, write_bytes : on the memory bus
    counters : all of the RTL
    differences : from golden, as text; empty if there are none
    """

    variant: str
    part: str
    cycles: int
    segments: list
    read_bytes: int
    write_bytes: int
    counters: dict = field(repr=False)
    differences: list

    def as_dict(self):
        values = {name: value for name, value in vars(self).items() if name != "segments"}
        return values | {"segments": [vars(segment) for segment in self.segments]}


def measure(variant, preset, *, images, seed=1, model=None, input_shape=(3, 16, 16), settings=None,
            classes=10):  # fmt: skip
    """Batches of ``variant``: of ``baseline`` one without prediction, else one of each part.

    Returns
    -------
    list of :class:`BatchCycles`
    """
    config = make_config(variant=variant, preset=preset, **(settings or {}))
    torch.manual_seed(seed)
    model = VggLike() if model is None else model
    rng = np.random.default_rng(seed)
    plain = variant == "baseline"
    phases = [Phase.BP] if plain else [Phase.BP, Phase.GP]
    batches = [
        Batch(
            images=rng.standard_normal((images, *input_shape[1:], input_shape[0])),
            targets=rng.integers(0, classes, images),
            optimizer=SGD(learning_rate=0.01, momentum=0.9, weight_decay=1e-4),
            phase=phase,
        )
        for phase in phases
    ]
    kind = TrainingRun if plain else AdaGPRun
    training = kind(model, config, input_shape, batches, reuse=False)
    programs = [training.program_of(batch) for batch in batches]
    outcomes = training.outcomes(seed=seed, latency=LATENCY)
    results = []
    for number, (phase, program, outcome) in enumerate(
        zip(phases, programs, outcomes, strict=True)
    ):
        differences, _ = training.compare(number, outcome.memory)
        counters = outcome.record.counters
        results.append(
            BatchCycles(
                variant=variant,
                part="bp" if phase.backpropagates else "gp",
                cycles=counters["CYCLES"],
                segments=segments(config, program, outcome),
                read_bytes=counters["READ_BYTES"],
                write_bytes=counters["WRITE_BYTES"],
                counters=counters,
                differences=[str(difference) for difference in differences],
            )
        )
    return results


def segments(config, program, outcome):
    """:class:`Segment` s of a batch, from when its tensors were written last."""
    counters = outcome.record.counters
    # The interrupt follows the last write, so nothing ends behind CYCLES.
    start = (
        int(outcome.written.max()) - counters["CYCLES"],
        int(outcome.stalled.max()) - memory_stall(counters),
    )
    kinds = {layer.name: layer.kind for layer in program.layers}
    found, direction = [], "forward"
    for step in program.steps:
        if step.direction == "loss":
            direction = "backward"
        # What is done beside the products has no place among them.
        if step.background or (step.predictor and config.has_predictor_core):
            continue
        new = kinds.get(step.layer) in PRODUCTS and not step.predictor
        if new and (not found or found[-1][:2] != (step.layer, direction)):
            found.append((step.layer, direction, []))
        found[-1][2].append(step)
    beside = _beside(config, program, outcome, start)
    result, begin = [], (0, 0)
    for layer, direction, steps in found:
        ends = [_end(config, program, outcome, step, start) for step in steps]
        end = max([begin, *ends])
        result.append(
            Segment(
                layer=layer,
                direction=direction,
                begin=begin[0],
                end=end[0],
                memory_stall=end[1] - begin[1],
                array=sum(step.vectors for step in steps if not step.predictor),
                predictor=sum(step.vectors for step in steps if step.predictor),
                beside=beside.get((layer, direction), 0),
            )
        )
        begin = end
    return result


def _beside(config, program, outcome, start):
    """{(layer, direction): cycles} from when the predictor's core could begin, because the layer
    was done and the one before it, too, to its last result for the layer."""
    if not config.has_predictor_core:
        return {}
    found, direction, done, free = {}, "forward", {}, 0
    for step in program.steps:
        direction = "backward" if step.direction == "loss" else direction
        end, _ = _end(config, program, outcome, step, start)
        if step.predictor:
            key, begin = (step.layer, direction), max(free, done.get(step.layer, 0))
            found[key] = found.get(key, 0) + max(0, end - begin)
            free = max(free, end)
        elif step.direction not in ("update", "predicted update"):
            done[step.layer] = max(done.get(step.layer, 0), end)
    return found


def _end(config, program, outcome, step, start):
    """(Cycle, stalls of the main array up to it) in which the last of a step's results was written,
    from ``start`` on; those that several layers write say nothing."""
    beat, last = config.beat_bytes, (0, 0)
    for name in step.writes:
        # A product's cells are the predictor's: it goes on beside the next product.
        if not step.predictor and ".prediction." in name:
            continue
        tensor = program.tensors.get(name)
        if tensor is not None and not name.startswith("predictor."):
            first = tensor.offset // beat
            beats = slice(first, -(-(tensor.offset + tensor.size) // beat))
            # Both grow with time.
            ends = outcome.written[beats], outcome.stalled[beats]
            last = max(last, tuple(int(end.max(initial=0)) for end in ends))
    return tuple(end - begin for end, begin in zip(last, start, strict=True))


def exposed(batches, batch):
    """{(layer, direction): cycles} that ``batch`` takes beyond ``baseline``, which has no
    predictor; ("behind", "") is what comes when the last layer is done."""
    plain = next(b for b in batches if b.variant == "baseline")
    known = {(s.layer, s.direction): s.cycles for s in plain.segments}
    found = {(s.layer, s.direction): s.cycles - known[s.layer, s.direction]
             for s in batch.segments}  # fmt: skip
    found["behind", ""] = batch.cycles - max(segment.end for segment in batch.segments)
    return found


def hidden(batches):
    """{(layer, direction): share} of the cycles of the predictor's core in Phase GP that ``max``
    hides; of layers that take longer than their predictor."""
    last = next((b for b in batches if (b.variant, b.part) == ("max", "gp")), None)
    if last is None:
        return {}
    left = exposed(batches, last)
    plain = next(b for b in batches if b.variant == "baseline")
    known = {(s.layer, s.direction): s.cycles for s in plain.segments}
    return {
        (s.layer, s.direction): 1 - max(0, left[s.layer, s.direction]) / s.beside
        for s in last.segments
        if 0 < s.beside < known[s.layer, s.direction]
    }


def late(batches):
    """[(part, layer, direction, variant, variant)]: layers that the first, which has more hardware,
    is done with later than the second; ("behind", "") for the whole batch."""
    found = []
    for part in ("bp", "gp"):
        ends = {}
        for batch in batches:
            if batch.part == part:
                own = ends[batch.variant] = {(s.layer, s.direction): s.end for s in batch.segments}
                own["behind", ""] = batch.cycles
        for more, less in (("efficient", "low"), ("max", "efficient")):
            if {more, less} <= set(ends):
                found += [
                    (part, *key, more, less) for key, end in ends[more].items()
                    if end > ends[less][key]
                ]  # fmt: skip
    return found


def memory_stall(counters):
    """Cycles in which the main array has a command, but waits for weights or the buffer."""
    return counters["CORE0_STALL_WEIGHTS"] + counters["CORE0_STALL_BUFFER"]


def speed_ups(batches):
    """{variant: (schedule A, schedule B)}: time of ``baseline`` over that of the variant."""
    baseline = next(b.cycles for b in batches if b.variant == "baseline")
    paper = list(ScheduleConfig().phases(EPOCHS, EPOCH_BATCHES))
    share = sum(phase is Phase.GP for phase in paper) / len(paper)
    found = {}
    for variant in dict.fromkeys(b.variant for b in batches if b.variant != "baseline"):
        bp, gp = (
            next(b.cycles for b in batches if (b.variant, b.part) == (variant, part))
            for part in ("bp", "gp")
        )
        found[variant] = tuple(baseline / ((1 - g) * bp + g * gp) for g in (share, 0.5))
    return found


def traffic(batches):
    """{variant: (bytes of a batch of backpropagation, of Phase GP, saving in schedule B)}."""
    total = {(b.variant, b.part): b.read_bytes + b.write_bytes for b in batches}
    baseline = total["baseline", "bp"]
    return {
        variant: (total[variant, "bp"], total[variant, "gp"],
                  1 - (total[variant, "bp"] + total[variant, "gp"]) / (2 * baseline))
        for variant in dict.fromkeys(b.variant for b in batches if b.variant != "baseline")
    }  # fmt: skip
