"""Which core computes which stage for which images."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from compiler.errors import CompileError
from compiler.tensors.intervals import Interval
from hw.config import AdaGPConfig, CoreConfig

from .tiling import Geometry

if TYPE_CHECKING:
    from compiler.frontend.sequential import Stage

__all__ = ["Placement", "place"]

#: Image groups that follow each other through the cores of a pipeline.
_PIPELINE_GROUPS = 4
#: Tokens a semaphore holds.
_MAX_TOKENS = 15


@dataclass(frozen=True)
class Placement:
    """``groups``: images (begin, end) of each group; ``cores[group][stage]``: core index."""

    groups: tuple[Interval, ...]
    cores: tuple[tuple[int, ...], ...]


def place(
    stages: "Sequence[Stage]", config: AdaGPConfig, choice: str | Sequence[int] | None = None
) -> Placement:
    """Place ``stages``.

    Parameters
    ----------
    choice :
        - ``"main"``: everything on core 0;
        - ``"pipeline"``: the first stages on core 0 and the rest on core 1, which works on one
          group of images while core 0 works on the next; balanced by cycles;
        - ``"split"``: a part of the images entirely on core 0, the others on core 1;
        - a list of core indices, one for each stage: a pipeline with these cores;
        - None: "pipeline" if there are two cores and two stages, else "main".

    Raises
    ------
    CompileError : unknown choice, or a core that the configuration does not have
    """
    images, count = stages[0].input_shape[0], len(stages)
    two = len(config.cores) == 2
    if choice is None:
        choice = "pipeline" if two and count > 1 else "main"
    if isinstance(choice, list | tuple):
        cores = tuple(choice)
        if len(cores) != count or not set(cores) <= set(range(len(config.cores))):
            raise CompileError(
                f"placement must list a core from 0 to {len(config.cores) - 1} for each of the "
                f"{count} stages, not {list(choice)}"
            )
        return _pipeline(images, cores)
    if choice not in ("main", "pipeline", "split"):
        raise CompileError(
            f"placement must be 'main', 'pipeline', 'split' or a list of cores, not {choice!r}"
        )
    if choice != "main" and not two:
        raise CompileError(f"placement {choice!r} needs two cores; {config.variant} has one")
    if choice == "pipeline" and count > 1:
        cost = [[_cycles(stage, core) for stage in stages] for core in config.cores]
        first = min(range(1, count), key=lambda i: (max(sum(cost[0][:i]), sum(cost[1][i:])), -i))
        return _pipeline(images, (0,) * first + (1,) * (count - first))
    if choice == "split" and images > 1:
        main, other = (sum(_cycles(stage, core) for stage in stages) for core in config.cores)
        edge = min(max(1, round(images * other / (main + other))), images - 1)
        return Placement(((0, edge), (edge, images)), ((0,) * count, (1,) * count))
    return Placement(((0, images),), ((0,) * count,))


def _pipeline(images: int, cores: tuple[int, ...]) -> Placement:
    pairs = list(pairwise(cores))
    crossings = max(pairs.count((0, 1)), pairs.count((1, 0)))
    if crossings > _MAX_TOKENS:
        raise CompileError(f"placement changes cores more than {_MAX_TOKENS} times")
    count = min(images, _PIPELINE_GROUPS, _MAX_TOKENS // crossings) if crossings else 1
    edges = [images * i // count for i in range(count + 1)]
    return Placement(tuple(pairwise(edges)), (cores,) * count)


def _cycles(stage: "Stage", core: CoreConfig) -> int:
    """Vector cycles of ``stage`` on ``core``."""
    geometry = Geometry(stage, core)
    images, (height, width) = stage.input_shape[0], stage.conv_shape
    return images * height * width * geometry.k_tiles * geometry.column_tiles
