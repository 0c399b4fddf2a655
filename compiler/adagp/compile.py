"""Training by gradient prediction: batches of backpropagation and of Phase GP."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import prod
from typing import Any

import torch

from cli.collector import collector_paused
from compiler.codegen.attempts import MOST_WRITTEN_OUT, Findings, write_program
from compiler.codegen.binary.command_bytes import encode_commands, moved
from compiler.codegen.binary.packing import packed
from compiler.codegen.core_builder import CoreProgram
from compiler.codegen.cost import Command, executed_count
from compiler.codegen.dependencies import Recorder
from compiler.codegen.program import SemaphoreNames
from compiler.codegen.replay import Recordings
from compiler.errors import CompileError
from compiler.frontend.torch_graph import Layer
from compiler.stages import stage
from compiler.tensors.intervals import round_up
from compiler.tensors.tensor import Tensor
from compiler.training.compile import WrittenSteps, plan_memory, training_layers
from compiler.training.group_writer import Decisions, least_hidden, write_groups
from compiler.training.program import LayerInfo, StepInfo, TrainingProgram
from compiler.training.step import Step
from hw.config import AdaGPConfig
from hw.isa.encoding import COMMAND_BYTES, Opcode
from hw.isa.loops import LOOP_LEVELS, stride_name

from .program import PARTS, AdaGPProgram
from .steps import PredictionSteps
from .tensors import PredictorShape

__all__ = ["PARTS", "AdaGPProgram", "PredictorShape", "compile_adagp"]

#: Cycles of products forward for a command of a batch, at most; what is above is long for sure.
_CYCLES = 1024
#: The counter of loops that is 1 in odd batches of a run.
_PARITY = LOOP_LEVELS - 1


@collector_paused()
def compile_adagp(
    model: torch.nn.Module,
    config: AdaGPConfig,
    input_shape: Sequence[int] | Sequence[Sequence[int]],
    *,
    images: int,
    loss: object = "cross_entropy",
    optimizer: object = "sgd",
    shape: PredictorShape = PredictorShape(),  # noqa: B008 (immutable)
    predict: Collection[str] | None = None,
    reuse: bool = True,
    loops: bool | None = None,
    beside: bool | None = None,
) -> AdaGPProgram:
    """Compile batches of backpropagation and of Phase GP.

    The variant says where the predictor works: ``baseline`` and ``low`` on the main core, with the
    global buffer; ``efficient`` on the main core with the predictor memory; ``max`` on a core of
    its own.

    Parameters
    ----------
    model, config, input_shape, images, loss, optimizer, reuse, loops, beside : see
        :func:`compiler.training.compile_training`
    shape : of the predictor
    predict : names of the layers to predict, None for all that can be

    Raises
    ------
    CompileError
        naming the layer, why it cannot be compiled and what can.
    """
    layers = training_layers(model, config, input_shape, images, optimizer)
    if not isinstance(shape, PredictorShape):
        raise CompileError(f"shape must be a PredictorShape, not {shape!r}")
    if isinstance(predict, str):
        raise CompileError(f"predict must be a list of names of layers, not {predict!r}")
    graphs = {
        part: PredictionSteps(
            layers, config, images=images, loss=loss, optimizer=optimizer,
            core=config.cores[-1], shape=shape, predict=predict, backpropagate=part == "bp",
            together=beside,
        )
        for part in PARTS
    }  # fmt: skip
    return _Compiler(config, graphs, images, layers, reuse=reuse, loops=loops).compile()


class _Compiler:
    def __init__(
        self,
        config: AdaGPConfig,
        graphs: Mapping[str, PredictionSteps],
        images: int,
        layers: Sequence[Layer],
        *,
        reuse: bool,
        loops: bool | None,
    ) -> None:
        self.config, self.graphs = config, graphs
        self.loops = loops
        self.common: dict[str, Any] = {
            "config": config, "layers": [LayerInfo.of(layer) for layer in layers],
            "images": images, "outputs": graphs[PARTS[0]].outputs,
        }  # fmt: skip
        first = graphs[PARTS[0]]
        self.inputs = (*first.inputs, *first.targets)
        prefixed = {f"{part}: ": graph for part, graph in graphs.items()}
        self.plan = plan_memory(prefixed, reuse=reuse, twice=self.inputs)
        self.odd = {
            name: replace(first.tensors[name], offset=self.plan.offsets[f"{name} (odd)"])
            for name in self.inputs
        }
        self.tensors = {part: self._tensors(part) for part in PARTS}
        self.recordings = Recordings()
        self._worth = least_hidden(first.groups, images)
        self._known = {part: Decisions() for part in PARTS}
        self._findings: defaultdict[tuple[str, bool | None], Findings] = defaultdict(Findings)
        #: What has been recorded, by part and whether it loads what stays.
        self._written: dict[tuple[str, bool], WrittenSteps] = {}
        self._codes: dict[tuple[str, bool], bytes] = {}

    def _tensors(self, part: str) -> dict[str, Tensor]:
        graph = self.graphs[part]
        kept, offsets = graph.kept, self.plan.offsets
        return graph.placed(lambda name: offsets.get(name if name in kept else f"{part}: {name}"))

    def compile(self) -> AdaGPProgram:
        parts, end = {}, self.plan.size
        for part in PARTS:
            _, infos, names = self._write(part, load=True)
            code = self._encoded(part, 0, load=True) + encode_commands([Command(Opcode.HALT)])
            code = self._packed(bytes(code), end)
            parts[part] = self._program(
                part, code, infos, end, [SemaphoreNames(first=0, names=names)]
            )
            end += len(code)
        code, names = self._loop()
        loop = self._program(PARTS[0], self._packed(code, end), [], end, names)
        size = round_up(end + len(loop.commands), 4096)
        first = self.graphs[PARTS[0]]
        return AdaGPProgram(
            parts={name: replace(part, memory_size=size) for name, part in parts.items()},
            loop=replace(loop, memory_size=size),
            odd=self.odd,
            predictor=first.predictor,
            head=first.head,
            plan=self.plan,
            memory_size=size,
        )

    def _packed(self, code: bytes, begin: int) -> bytes:
        """A program at offset 0, packed, as it is at ``begin``."""
        before = begin - self.plan.size
        with stage("encode"):
            return packed(
                code, begin, require_room=lambda size: self.plan.require_room(before + size)
            )

    def _loop(self) -> tuple[bytes, list[SemaphoreNames]]:
        """A prologue, and a batch for each phase, with BATCH behind each of them; the stream's
        bytes, and the names of its semaphores. A counter of loops that the batches do not use is 1
        in odd ones, and moves the addresses of their inputs."""
        prologue = Recorder(self.config)
        predictor = self._programs(prologue)[1]
        predictor.fetch(self._keep(PARTS[0], predictor, load=True))
        batches = {part: self._write(part, load=False) for part in PARTS}
        start = prologue.link()[:-1]
        # In front of a batch a command that makes it an odd one, behind it one that forgets that.
        targets: dict[str, int] = {}
        place = (len(start) + 1) * COMMAND_BYTES
        for part, (commands, _, _) in batches.items():
            targets |= {f"{part}_odd": place, f"{part}_even": place + COMMAND_BYTES}
            place += (len(commands) + 3) * COMMAND_BYTES
        code = bytearray(
            encode_commands([*start, Command(Opcode.BATCH, fields={"first": 1, **targets})])
        )
        semaphores = [SemaphoreNames(first=0, names=prologue.semaphores)]
        for part, (_, _, names) in batches.items():
            semaphores.append(SemaphoreNames(first=len(code) // COMMAND_BYTES, names=names))
            first = len(code) + COMMAND_BYTES
            code += encode_commands([_parity(count=2, first=first)])
            code += self._encoded(part, first, load=False, odd=True)
            batch = Command(Opcode.BATCH, fields={"first": 0, **targets})
            code += encode_commands([_parity(count=1, first=first), batch])
        return bytes(code), semaphores

    def _encoded(self, part: str, offset: int, *, load: bool, odd: bool = False) -> bytearray:
        """A batch as it is at ``offset``; ``odd``: with inputs from their other place in odd
        batches. Only what changes with that is encoded again."""
        key, (commands, _, _) = self._key(part, load), self._write(part, load=load)
        with stage("encode"):
            if key not in self._codes:
                self._codes[key] = encode_commands(commands)
            code = bytearray(self._codes[key])
            new = self._with_odd_inputs(part, commands) if odd else commands
            pairs = enumerate(zip(commands, moved(new, offset), strict=True))
            changed = {place: after for place, (before, after) in pairs if after is not before}
            data = encode_commands(changed.values())
            for number, place in enumerate(changed):
                at, own = place * COMMAND_BYTES, number * COMMAND_BYTES
                code[at : at + COMMAND_BYTES] = data[own : own + COMMAND_BYTES]
        return code

    def _with_odd_inputs(self, part: str, commands: Iterable[Command]) -> Iterator[Command]:
        """The same commands, which take the inputs from their other place in odd batches: they are
        loaded only."""
        moves = {}
        for name, tensor in self.odd.items():
            if name not in self.tensors[part]:
                continue  # the targets of a part that computes no loss
            begin = self.tensors[part][name].offset
            moves[begin, begin + tensor.size] = tensor.offset - begin
        for command in commands:
            if command.opcode is Opcode.LOAD:
                address = command.fields["dram_address"]
                for (begin, end), distance in moves.items():
                    if begin <= address < end:
                        # Modulo 2**32, as a signed number.
                        stride = (distance + (1 << 31)) % (1 << 32) - (1 << 31)
                        fields = command.fields | {stride_name(_PARITY): stride}
                        command = replace(command, fields=fields)
            yield command

    def _write(self, part: str, *, load: bool) -> WrittenSteps:
        """Commands of a batch without its end, what of them belongs to which step, and the names
        of their semaphores. Where nothing stays in a memory for the predictor, ``load`` makes no
        difference."""
        key = self._key(part, load)
        if key not in self._written:
            self._written[key] = self._record(part, load=load)
        return self._written[key]

    def _key(self, part: str, load: bool) -> tuple[str, bool]:
        return part, load and self._stays

    def _record(self, part: str, *, load: bool) -> WrittenSteps:
        tensors = self.tensors[part]

        def write(recorder: Recorder) -> WrittenSteps:
            main, predictor = self._programs(recorder)
            self._keep(part, predictor, load=load)

            def program_of(step: Step) -> CoreProgram:
                return predictor if step.predictor else main

            infos = write_groups(
                self.graphs[part].groups, recorder, program_of, tensors, self._known[part],
                worth=self._worth,
            )  # fmt: skip
            with stage("semaphores"):
                commands = recorder.link()[:-1]
            return commands, [info.placed(recorder) for info in infos], recorder.semaphores

        def attempt(loops: bool | None) -> WrittenSteps:
            # What is loaded or stays makes little difference to what has been found.
            return write_program(
                self.config, write, loops=loops, levels=_PARITY, recordings=self.recordings,
                findings=self._findings[part, loops],
            )  # fmt: skip

        if self.loops is not None or not self._is_long:
            return attempt(self.loops)
        # Likely to be too long to be written out: with loops that is known sooner.
        found = attempt(True)
        repeats = [(n, c.fields) for n, c in enumerate(found[0]) if c.opcode is Opcode.REPEAT]
        if executed_count(len(found[0]), repeats) > MOST_WRITTEN_OUT:
            return found
        return attempt(False)

    @property
    def _is_long(self) -> bool:
        """Whether a part that has been written has loops, or else whether the array has so much to
        do that many commands are to be expected."""
        if not self._written:
            return self.graphs[PARTS[0]].forward_cycles > _CYCLES * MOST_WRITTEN_OUT
        return any(
            command.opcode is Opcode.REPEAT
            for commands, _, _ in self._written.values() for command in commands
        )  # fmt: skip

    def _programs(self, recorder: Recorder) -> tuple[CoreProgram, CoreProgram]:
        """:class:`CoreProgram` s of the network and of the predictor."""
        config = self.config
        main = CoreProgram(config, config.cores[0], recorder)
        if not config.has_predictor_memory:
            return main, main
        return main, CoreProgram(config, config.cores[-1], recorder, memory=1)

    def _keep(self, part: str, program: CoreProgram, *, load: bool) -> str:
        """Keep the predictor's weights in its memory if they stay there; their name."""
        weights = self._weights(part)
        if self._stays:
            program.keep(weights, load=load)
        return weights.name

    def _weights(self, part: str) -> Tensor:
        """The predictor's weights as operands."""
        predictor = self.graphs[part].predictor
        return self.tensors[part][predictor.full.tensors["operands"].name]

    @cached_property
    def _stays(self) -> bool:
        """Whether half of the predictor's memory is enough for its weights."""
        weights, (_, program) = self._weights(PARTS[0]), self._programs(Recorder(self.config))
        words = prod(weights.shape[:3]) * program.words(weights)
        return self.config.has_predictor_memory and 2 * words <= program.scratch.words

    def _program(
        self,
        part: str,
        commands: bytes,
        infos: list[StepInfo],
        begin: int,
        semaphores: list[SemaphoreNames],
    ) -> TrainingProgram:
        graph, tensors = self.graphs[part], self.tensors[part]
        return TrainingProgram(
            **self.common, commands=commands, semaphores=semaphores, steps=infos,
            tensors=tensors, maps=graph.maps, gradients=graph.gradients,
            parameters={
                name: parameter.placed_as(tensors) for name, parameter in graph.parameters.items()
            },
            constants=graph.constants, plan=self.plan, program=begin, memory_size=0,
        )  # fmt: skip


def _parity(*, count: int, first: int) -> Command:
    """REPEAT of the counter of odd batches, which goes on at ``first``, the next batch's first
    command: it makes the counter 1 if ``count`` is 2, and 0 if it is 1."""
    return Command(Opcode.REPEAT, fields={"level": _PARITY, "count": count, "first": first})
