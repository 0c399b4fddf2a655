"""Chooses how a run is cut: tries tile sizes that fit and takes the one estimated fastest."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from compiler.codegen.core_builder import CoreProgram
from compiler.codegen.trial import Trial
from compiler.errors import CompileError
from hw.config import AdaGPConfig

from .run import Plan, Run, group_unit
from .schedule import RunScheduler
from .tiling import Geometry, Tile, k_boxes, split_tile, tile_grid

__all__ = ["plan_run"]

#: Fractions of the accumulator memory that are tried as tile sizes.
_FRACTIONS = (1, 3 / 4, 1 / 2, 3 / 8, 1 / 4, 3 / 16, 1 / 8, 1 / 16, 1 / 32, 1 / 64)
#: Slots of the weight ring that are tried, best first.
_W_SLOTS = (6, 4, 3, 2)
#: Products that are estimated before the search for better plans ends, for the whole network and
#: for each of its products at least.
_BUDGET, _LEAST_BUDGET = 8000, 1000
#: Most entries a tile can have: strides between entries are signed 16-bit numbers.
_MOST_VECTORS = 0x7FFF
#: Estimated cost of two kinds of data sharing a bank.
_CONFLICT_PENALTY = 1.02


def plan_run(config: AdaGPConfig, run: Run, memories: Iterable[int], *, share: int = 1) -> Plan:
    """The best plan found for ``run``, whose weights go through the first of ``memories`` that has
    room. It is one of ``share`` that the time for the search is divided among.

    Raises :class:`CompileError` if not even the smallest pieces fit.
    """
    for memory in memories:
        planner = _Planner(config, run, memory, max(_BUDGET // share, _LEAST_BUDGET))
        if candidates := planner.candidates():
            return planner.best(candidates)
    raise CompileError(
        f"layer {' + '.join(run.product.layers)}: not even one output fits core "
        f"{run.core.index}: it needs more than {run.core.accumulator_depth} accumulator "
        f"entries or {config.memory_depth[run.core.memories[0]]} buffer words"
    )


class _Planner:
    """Tries plans of a run."""

    def __init__(self, config: AdaGPConfig, run: Run, weights_memory: int, budget: int) -> None:
        self.config, self.run, self.weights_memory = config, run, weights_memory
        self.budget = budget
        self.geometry = Geometry(run.product, run.core)
        self.images = run.source.shape[0]

    def candidates(self) -> list[RunScheduler]:
        """Those that fit, those with the fewest products first."""
        found = self._few(self._whole_k()) or self._few(self._cut_k())
        return sorted(found, key=lambda scheduler: scheduler.size)

    def _few(self, schedulers: Iterable[RunScheduler]) -> list[RunScheduler]:
        """Those up to the first that nobody will estimate: products become more and more."""
        found = []
        for scheduler in schedulers:
            found.append(scheduler)
            if scheduler.size > self.budget:
                break
        return found

    def best(self, candidates: list[RunScheduler]) -> Plan:
        """The plan that is estimated fastest, of ``candidates`` and what is made of the best."""
        if candidates[0].size > self.budget:
            return candidates[0].plan
        ranked: list[tuple[float, int, Plan]] = []
        for scheduler, cost in self._costs(candidates):
            ranked.append((cost, len(ranked), scheduler.plan))
        ranked.sort(key=lambda entry: entry[:2])
        best_cost, _, best = ranked[0]
        for _, _, plan in ranked[:3]:
            for refined, cost in self._costs(self._refinements(plan)):
                if cost < best_cost:
                    best_cost, best = cost, refined.plan
        return best

    def _costs(self, schedulers: Iterable[RunScheduler]) -> Iterator[tuple[RunScheduler, float]]:
        """(scheduler, cost) of those that fit the time there is."""
        spent = 0
        for scheduler in schedulers:
            spent += scheduler.size
            yield scheduler, self._cost(scheduler)
            if spent > self.budget:
                return

    def _cost(self, scheduler: RunScheduler) -> float:
        trial = Trial(self.config)
        scheduler.write(CoreProgram(self.config, self.run.core, trial))
        cycles = trial.timeline.end
        return cycles * (1 if scheduler.spread else _CONFLICT_PENALTY)

    def _scheduler(self, plan: Plan) -> RunScheduler:
        return RunScheduler(self.config, self.run, plan, self.geometry)

    def _tilings(self) -> Iterator[tuple[Tile, ...]]:
        """Different tilings, from large tiles to small ones."""
        depth = min(self.run.core.accumulator_depth, _MOST_VECTORS)
        seen = set()
        for fraction in _FRACTIONS:
            tiles = tile_grid(self.geometry, (0, self.images), max(1, int(depth * fraction)))
            if tiles and tuple(tiles) not in seen:
                seen.add(tuple(tiles))
                yield tuple(tiles)
        smallest = tuple(tile_grid(self.geometry, (0, self.images), 1) or ())
        window = self.run.product.pool_kernel[0] * self.run.product.pool_kernel[1]
        smallest = smallest or tuple(
            tile_grid(self.geometry, (0, self.images), min(window, depth)) or ()
        )
        if smallest and smallest not in seen:
            yield smallest

    def _groups(self) -> list[int]:
        """Numbers of column tiles to store together."""
        tiles, unit = self.geometry.column_tiles, group_unit(self.run.core)
        options = [tiles]
        for parts in (2, 4, 8):
            group = -(-tiles // parts // unit) * unit
            if 0 < group < tiles and group not in options:
                options.append(group)
        if unit < tiles and unit not in options:
            options.append(unit)
        return options

    def _whole_k(self) -> Iterator[RunScheduler]:
        """Plans that hold the inputs and one column tile's weights for all K tiles."""
        box = (self.geometry.whole,)
        for tiles in self._tilings():
            for group in self._groups():
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
                    weights_memory=self.weights_memory,
                )
                rings = [replace(base, resident=False, w_slots=slots) for slots in _W_SLOTS]
                fitting = self._first_fitting([base, *rings])
                if fitting:
                    yield fitting
                if self.geometry.column_tiles > 1:
                    together = self._scheduler(replace(base, w_group=self.geometry.column_tiles))
                    if together.fits and together.spread:
                        yield together

    def _first_fitting(self, plans: Iterable[Plan]) -> RunScheduler | None:
        """The first plan whose data lie in banks of their own, else the first that fits."""
        fallback = None
        for plan in plans:
            scheduler = self._scheduler(plan)
            if scheduler.fits and scheduler.spread:
                return scheduler
            if scheduler.fits and fallback is None:
                fallback = scheduler
        return fallback

    def _cut_k(self) -> Iterator[RunScheduler]:
        """Plans that cut the K tiles, first only for the weights, then for the inputs as well."""
        for chunk_x in (False, True):
            found = False
            for tiles in self._tilings():
                limit = self.geometry.k_tiles
                while limit > 1:
                    limit = -(-limit // 2)
                    boxes = tuple(k_boxes(self.geometry, [limit]))
                    base = Plan(
                        tiles=tiles,
                        boxes=boxes,
                        head_boxes=boxes,
                        chunk_x=chunk_x,
                        resident=False,
                        x_slots=2,
                        w_slots=2,
                        out_slots=2,
                        group=self._groups()[-1],
                        weights_memory=self.weights_memory,
                    )
                    slim = replace(base, out_slots=1)
                    slimmer = replace(slim, x_slots=1)
                    fitting = self._first_fitting(
                        [base, slim, slimmer, replace(slimmer, w_slots=1)]
                    )
                    if fitting:
                        found = True
                        yield fitting
                        break
            if found:
                return

    def _refinements(self, plan: Plan) -> Iterator[RunScheduler]:
        """The plan with a smaller first and last tile and an early first product."""
        columns = self.run.core.columns
        heads = [plan.head_boxes]
        if len(plan.boxes) == 1 and self.geometry.k_tiles > 4:
            for start in (1, 3, 8):
                limits = [max(start, self.geometry.k_tiles // 24) << shift for shift in range(20)]
                boxes = tuple(k_boxes(self.geometry, limits))
                if len(boxes) <= 10 and boxes not in heads:
                    heads.append(boxes)
        splits = [plan.tiles]
        for first in (2 * columns, 4 * columns, 0, 8 * columns):
            for last in (2 * columns, columns, 4 * columns, 0):
                tiles = list(plan.tiles)
                if first and self.geometry.vectors(tiles[0]) > first:
                    tiles[:1] = split_tile(self.geometry, tiles[0], first, small_first=True)
                if last and self.geometry.vectors(tiles[-1]) > last:
                    tiles[-1:] = split_tile(self.geometry, tiles[-1], last, small_first=False)
                if tuple(tiles) not in splits:
                    splits.append(tuple(tiles))
        for tiles in splits:
            for head in heads:
                slots = plan.x_slots if plan.chunk_x else min(2, len(tiles))
                refined = self._scheduler(
                    replace(plan, tiles=tiles, head_boxes=head, x_slots=slots)
                )
                if refined.fits:
                    yield refined
