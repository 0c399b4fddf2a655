"""Which core computes which product for which images."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from compiler.errors import CompileError
from compiler.tensors.intervals import Interval
from hw.config import AdaGPConfig, CoreConfig

from .fused_product import FusedProduct
from .tiling import Geometry

__all__ = ["Placement", "place"]

#: Image groups that follow each other through the cores of a pipeline.
_PIPELINE_GROUPS = 4
#: Tokens a semaphore holds.
_MAX_TOKENS = 15


@dataclass(frozen=True)
class Placement:
    """``groups``: images (begin, end) of each group; ``cores[group][product]``: core index."""

    groups: tuple[Interval, ...]
    cores: tuple[tuple[int, ...], ...]


def place(
    products: Sequence[FusedProduct], config: AdaGPConfig, *, images: int, alone: bool,
    choice: str | Sequence[int] | None = None,
) -> Placement:  # fmt: skip
    """Place ``products``, through which ``images`` pass.

    Parameters
    ----------
    alone : the network consists of them, and has no other layer that computes; otherwise all of it
        is on core 0
    choice :
        - ``"main"``: everything on core 0;
        - ``"pipeline"``: the first products on core 0 and the rest on core 1, which works on one
          group of images while core 0 works on the next; balanced by cycles;
        - ``"split"``: a part of the images entirely on core 0, the others on core 1;
        - a list of core indices, one for each product: a pipeline with these cores;
        - None: "pipeline" if there are two cores and two
          products ``alone``, else "main".

    Raises
    ------
    CompileError : unknown choice, or a core that the configuration does not have
    """
    count, two = len(products), len(config.cores) == 2
    if choice is None:
        choice = "pipeline" if two and count > 1 and alone else "main"
    if choice != "main" and not alone:
        raise CompileError(
            f"placement {choice!r} is for networks of convolutions, linear layers, ReLU and pooling"
            " that are fused with them alone; this one is computed on core 0, placement 'main'"
        )
    if isinstance(choice, list | tuple):
        cores = tuple(choice)
        if len(cores) != count or not set(cores) <= set(range(len(config.cores))):
            raise CompileError(
                f"placement must list a core from 0 to {len(config.cores) - 1} for each of the "
                f"{count} products, not {list(choice)}"
            )
        return _pipeline(images, cores)
    if choice not in ("main", "pipeline", "split"):
        raise CompileError(
            f"placement must be 'main', 'pipeline', 'split' or a list of cores, not {choice!r}"
        )
    if choice != "main" and not two:
        raise CompileError(f"placement {choice!r} needs two cores; {config.variant} has one")
    if choice == "pipeline" and count > 1:
        cost = [[_cycles(product, core) for product in products] for core in config.cores]
        first = min(range(1, count), key=lambda i: (max(sum(cost[0][:i]), sum(cost[1][i:])), -i))
        return _pipeline(images, (0,) * first + (1,) * (count - first))
    if choice == "split" and images > 1:
        main, other = (sum(_cycles(product, core) for product in products) for core in config.cores)
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


def _cycles(product: FusedProduct, core: CoreConfig) -> int:
    """Vector cycles of an image on ``core``."""
    geometry, (height, width) = Geometry(product, core), product.conv_map
    return height * width * geometry.k_tiles * geometry.column_tiles
