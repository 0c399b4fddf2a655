"""``python -m compiler --network``: compile a network by its name and sum it up."""

import argparse
import json
import resource
import time
from dataclasses import asdict
from importlib import import_module
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from cli.atomic_files import write_whole
from cli.collector import collector_paused
from cli.consoles import table_console
from cli.progress import progress_bar
from compiler.adagp.program import AdaGPProgram
from compiler.adagp.tensors import PredictorShape
from compiler.stages import Stages, stage
from compiler.training.program import TrainingProgram
from hw.config import AdaGPConfig
from hw.config.selection import select_config

from .command_counts import counts_table
from .layer_table import array_table, layer_table, print_totals
from .registry import InputShape, network, published, read_shape
from .summary import in_order, summarize

__all__ = ["chosen", "compile_network", "compiled"]

#: What is loaded before the clock starts, which is no part of compiling: torch, and what it loads
#: itself when it works out the shapes of maps, and the compiler with numba.
_LIBRARIES = "torch", "torch._dynamo", "compiler.adagp.compile"


@collector_paused()
def compile_network(options: argparse.Namespace) -> None:
    """Compile ``options.network``; print layers and totals, write what was asked for.

    Raises
    ------
    CompileError, ConfigError
        with what is wrong.
    """
    for library in _LIBRARIES:
        import_module(library)
    console = table_console(240)
    config = select_config(
        variant=options.variant, preset=options.preset, settings=options.settings
    )
    with progress_bar(Console(stderr=True)) as bar:
        task = bar.add_task("", total=None)

        def begin(kind: str, what: str) -> None:
            bar.update(task, advance=1, description=f"{what} {kind}".strip())

        with Stages(begin) as stages:
            start = time.perf_counter()
            program = compiled(options, config, beside=options.beside)
            seconds = time.perf_counter() - start
            with stage("estimate"):
                layers, programs = summarize(program)
            total = time.perf_counter() - start
    run = program.loop if isinstance(program, AdaGPProgram) else program
    stream_bytes = len(run.commands)
    console.print(layer_table(layers, programs, apart=not in_order(program)))
    if uses := array_table(layers, config.cores[0]):
        console.print(uses)
    print_totals(
        console, programs, stream_bytes=stream_bytes, memory_bytes=program.memory_size,
        seconds=seconds, images=options.batch,
    )  # fmt: skip
    if options.profile:
        console.print(_profile(stages, total))
        console.print(counts_table(program))
    if options.output:
        program.save(options.output)
        console.print(f"wrote {options.output}", markup=False, soft_wrap=True)
    if options.json:
        result = {
            "programs": {name: asdict(found) for name, found in programs.items()},
            "stream_bytes": stream_bytes,
            "memory_bytes": program.memory_size,
            "seconds": round(seconds, 1),
            "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "configuration": config.hash,
            "stages": {kind: round(spent, 2) for kind, spent in stages.seconds.items()},
            "layers": [asdict(layer) for layer in layers],
        }
        write_whole(options.json, json.dumps(result, indent=1) + "\n")


def compiled(
    options: argparse.Namespace,
    config: AdaGPConfig,
    predictor: PredictorShape | None = None,
    *,
    beside: bool | None = None,
) -> TrainingProgram | AdaGPProgram:
    """The program of ``options.network``, as the options of the command line say; ``predictor``:
    other sizes than the usual ones; ``beside`` as of
    :func:`compiler.training.compile.compile_training`."""
    from compiler.adagp.compile import compile_adagp
    from compiler.training.compile import compile_training

    model, shape = chosen(options)
    others: dict[str, Any] = {
        "images": options.batch, "loss": options.loss or published(options.network).loss,
        "optimizer": options.optimizer, "beside": beside,
    }  # fmt: skip
    if options.method != "adagp":
        return compile_training(model, config, shape, **others)
    return compile_adagp(model, config, shape, shape=predictor or PredictorShape(), **others)


def chosen(options: argparse.Namespace) -> tuple[Any, InputShape]:
    """The module that ``network``, ``input``, ``classes`` and ``width`` name, and what it reads;
    ``input`` None: what it usually does."""
    given = options.input
    shape = published(options.network).shapes[0] if given is None else read_shape(given)
    model = network(options.network, shape, classes=options.classes, width=options.width)
    return model, shape


def _profile(stages: Stages, total: float) -> Table:
    """Seconds by stage, the longest first, and what is left of ``total``."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("stage", "seconds", "share"):
        table.add_column(heading, justify="left" if heading == "stage" else "right")
    rest = total - sum(stages.seconds.values())
    by_time = sorted(stages.seconds.items(), key=lambda item: -item[1])
    for kind, spent in [*by_time, ("what is left", rest)]:
        table.add_row(kind, f"{spent:.2f}", f"{spent / total:.1%}")
    return table
