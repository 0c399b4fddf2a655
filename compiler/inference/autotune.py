"""Chooses how a run is cut: tries tile sizes that fit and takes the one estimated fastest."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from compiler.codegen.cost import estimate
from compiler.errors import CompileError
from hw.config import AdaGPConfig

from .run import Plan, Run, Semaphore, group_unit
from .schedule import RunScheduler
from .tiling import Geometry, Tile, k_boxes, split_tile, tile_grid

__all__ = ["plan_run"]

#: Fractions of the accumulator memory that are tried as tile sizes.
_FRACTIONS = (1, 3 / 4, 1 / 2, 3 / 8, 1 / 4, 3 / 16, 1 / 8, 1 / 16, 1 / 32, 1 / 64)
#: Slots of the weight ring that are tried, best first.
_W_SLOTS = (6, 4, 3, 2)
#: Products that are estimated before the search for a better plan ends.
_BUDGET = 8000
#: Most entries a tile can have: strides between entries are signed 16-bit numbers.
_MOST_VECTORS = 0x7FFF
#: Estimated cost of two kinds of data sharing a bank.
_CONFLICT_PENALTY = 1.02


def plan_run(config: AdaGPConfig, run: Run) -> RunScheduler:
    """Plan ``run``.

    Returns the scheduler of the best plan found. Raises :class:`CompileError` if not even the
    smallest pieces fit.
    """
    geometry = Geometry(run.stage, run.core)
    candidates = list(_whole_k(config, run, geometry)) or list(_cut_k(config, run, geometry))
    if not candidates:
        raise CompileError(
            f"layer {' + '.join(run.stage.layers)}: not even one output fits core "
            f"{run.core.index}: it needs more than {run.core.accumulator_depth} accumulator "
            f"entries or {config.memory_depth[run.core.memories[0]]} buffer words"
        )
    candidates.sort(key=lambda scheduler: scheduler.size)
    if candidates[0].size > _BUDGET:
        return candidates[0]
    ranked: list[tuple[float, int, RunScheduler]] = []
    for scheduler, cost in _costs(config, candidates):
        ranked.append((cost, len(ranked), scheduler))
    ranked.sort(key=lambda entry: entry[:2])
    best_cost, _, best = ranked[0]
    for _, _, scheduler in ranked[:3]:
        for refined, cost in _costs(config, _refinements(config, run, geometry, scheduler.plan)):
            if cost < best_cost:
                best_cost, best = cost, refined
    return best


def _costs(
    config: AdaGPConfig, schedulers: Iterable[RunScheduler]
) -> Iterator[tuple[RunScheduler, float]]:
    """(scheduler, cost) of those that fit the time there is."""
    spent = 0
    for scheduler in schedulers:
        spent += scheduler.size
        yield scheduler, _cost(config, scheduler)
        if spent > _BUDGET:
            return


def _cost(config: AdaGPConfig, scheduler: RunScheduler) -> float:
    if scheduler.run.first:
        commands = scheduler.commands()
    else:
        commands = RunScheduler(
            config, replace(scheduler.run, first=True), scheduler.plan
        ).commands()
    for command in commands:
        command.wait &= ~_foreign(config, scheduler.run)
    cycles = estimate(commands, config)
    return cycles * (1 if scheduler.spread else _CONFLICT_PENALTY)


def _foreign(config: AdaGPConfig, run: Run) -> int:
    """Mask of the semaphore that another core signals to this run."""
    return 1 << (run.core.index * config.semaphores + Semaphore.INPUT)


def _tilings(run: Run, geometry: Geometry) -> Iterator[tuple[Tile, ...]]:
    """Different tilings, from large tiles to small ones."""
    depth = min(run.core.accumulator_depth, _MOST_VECTORS)
    seen = set()
    for fraction in _FRACTIONS:
        tiles = tile_grid(geometry, run.images, max(1, int(depth * fraction)))
        if tiles and tuple(tiles) not in seen:
            seen.add(tuple(tiles))
            yield tuple(tiles)
    smallest = tuple(tile_grid(geometry, run.images, 1) or ())
    window = run.stage.pool_kernel[0] * run.stage.pool_kernel[1]
    smallest = smallest or tuple(tile_grid(geometry, run.images, min(window, depth)) or ())
    if smallest and smallest not in seen:
        yield smallest


def _groups(run: Run, geometry: Geometry) -> list[int]:
    """Numbers of column tiles to store together."""
    tiles, unit = geometry.column_tiles, group_unit(run.core)
    options = [tiles]
    for parts in (2, 4, 8):
        group = -(-tiles // parts // unit) * unit
        if 0 < group < tiles and group not in options:
            options.append(group)
    if unit < tiles and unit not in options:
        options.append(unit)
    return options


def _whole_k(config: AdaGPConfig, run: Run, geometry: Geometry) -> Iterator[RunScheduler]:
    """Plans that hold the inputs and one column tile's weights for all K tiles."""
    box = (geometry.whole,)
    for tiles in _tilings(run, geometry):
        for group in _groups(run, geometry):
            base = Plan(
                tiles=tiles,
                boxes=box,
                head_boxes=box,
                chunk_x=False,
                resident=True,
                x_slots=min(2, len(tiles)),
                w_slots=2,
                out_slots=2,
                group=group,
            )
            rings = [replace(base, resident=False, w_slots=slots) for slots in _W_SLOTS]
            fitting = _first_fitting(config, run, [base, *rings])
            if fitting:
                yield fitting
            if geometry.column_tiles > 1:
                together = RunScheduler(config, run, replace(base, w_group=geometry.column_tiles))
                if together.fits and together.spread:
                    yield together


def _first_fitting(config: AdaGPConfig, run: Run, plans: Iterable[Plan]) -> RunScheduler | None:
    """The first plan whose data lie in banks of their own, else the first that fits, or None."""
    fallback = None
    for plan in plans:
        scheduler = RunScheduler(config, run, plan)
        if scheduler.fits and scheduler.spread:
            return scheduler
        if scheduler.fits and fallback is None:
            fallback = scheduler
    return fallback


def _cut_k(config: AdaGPConfig, run: Run, geometry: Geometry) -> Iterator[RunScheduler]:
    """Plans that cut the K tiles, at first only for the weights, then for the inputs as well."""
    for chunk_x in (False, True):
        found = False
        for tiles in _tilings(run, geometry):
            limit = geometry.k_tiles
            while limit > 1:
                limit = -(-limit // 2)
                boxes = tuple(k_boxes(geometry, [limit]))
                base = Plan(
                    tiles=tiles,
                    boxes=boxes,
                    head_boxes=boxes,
                    chunk_x=chunk_x,
                    resident=False,
                    x_slots=2,
                    w_slots=2,
                    out_slots=2,
                    group=_groups(run, geometry)[-1],
                )
                slim = replace(base, out_slots=1)
                slimmer = replace(slim, x_slots=1)
                fitting = _first_fitting(
                    config, run, [base, slim, slimmer, replace(slimmer, w_slots=1)]
                )
                if fitting:
                    found = True
                    yield fitting
                    break
        if found:
            return


def _refinements(
    config: AdaGPConfig, run: Run, geometry: Geometry, plan: Plan
) -> Iterator[RunScheduler]:
    """The plan with a smaller first and last tile and an early first product."""
    columns = run.core.columns
    heads = [plan.head_boxes]
    if len(plan.boxes) == 1 and geometry.k_tiles > 4:
        for start in (1, 3, 8):
            limits = [max(start, geometry.k_tiles // 24) << shift for shift in range(20)]
            boxes = tuple(k_boxes(geometry, limits))
            if len(boxes) <= 10 and boxes not in heads:
                heads.append(boxes)
    splits = [plan.tiles]
    for first in (2 * columns, 4 * columns, 0, 8 * columns):
        for last in (2 * columns, columns, 4 * columns, 0):
            tiles = list(plan.tiles)
            if first and geometry.vectors(tiles[0]) > first:
                tiles[:1] = split_tile(geometry, tiles[0], first, small_first=True)
            if last and geometry.vectors(tiles[-1]) > last:
                tiles[-1:] = split_tile(geometry, tiles[-1], last, small_first=False)
            if tuple(tiles) not in splits:
                splits.append(tuple(tiles))
    for tiles in splits:
        for head in heads:
            slots = plan.x_slots if plan.chunk_x else min(2, len(tiles))
            refined = RunScheduler(
                config, run, replace(plan, tiles=tiles, head_boxes=head, x_slots=slots)
            )
            if refined.fits:
                yield refined
