"""How long commands would take, to choose between ways of writing them."""

from bisect import bisect_left
from collections.abc import Hashable, Iterable

from hw.config import AdaGPConfig
from hw.isa.encoding import Opcode

from .cost import Command, Fields, Timeline
from .dependencies import Recorder
from .linking.entries import DRAM, Region

__all__ = ["Trial"]


class _Times:
    """When each part of a memory has been written, and read: edges, and a time for each part."""

    def __init__(self) -> None:
        self.edges, self.written, self.read = [0], [0], [0]

    def parts(self, region: Region) -> slice:
        """Of ``region``."""
        first = self._edge(region.begin)
        return slice(first, self._edge(region.end))

    def _edge(self, place: int) -> int:
        index = bisect_left(self.edges, place)
        if index == len(self.edges) or self.edges[index] != place:
            self.edges.insert(index, place)
            self.written.insert(index, self.written[index - 1])
            self.read.insert(index, self.read[index - 1])
        return index


class Trial(Recorder):
    """Takes the place of a recorder: estimates when commands start, and forgets them.

    What touches the same words on chip is in order; what touches the same bytes in DRAM may
    overlap.

    Members
    -------
    timeline : of the commands so far
    """

    def __init__(self, config: AdaGPConfig) -> None:
        super().__init__(config)
        self.timeline = Timeline(config)
        self._times: dict[Hashable, _Times] = {}
        self._weights: list[Region] = []  # what the last WEIGHTS of a pair reads

    def emit(
        self, opcode: Opcode, fields: Fields, *, reads: Iterable[Region] = (),
        writes: Iterable[Region] = (), core: int = 0,
    ) -> None:  # fmt: skip
        reads, writes = _on_chip(reads), _on_chip(writes)
        after = 0
        for region in reads:
            times = self._of(region)
            after = max(after, *times.written[times.parts(region)])
        for region in writes:
            times = self._of(region)
            parts = times.parts(region)
            after = max(after, *times.written[parts], *times.read[parts])
        self.timeline.push(Command(opcode, core, fields=fields), after)
        end = self.timeline.finished
        if opcode is Opcode.WEIGHTS:
            # How long that takes is known when there is a MATMUL.
            self._weights = reads
            return
        if opcode is Opcode.MATMUL:
            self._note(self._weights, self.timeline.fetched)
        self._note(reads, end)
        for region in writes:
            times = self._of(region)
            parts = times.parts(region)
            times.written[parts] = [end] * (parts.stop - parts.start)

    def _note(self, reads: Iterable[Region], end: int) -> None:
        for region in reads:
            times = self._of(region)
            parts = times.parts(region)
            times.read[parts] = [max(end, known) for known in times.read[parts]]

    def _of(self, region: Region) -> _Times:
        return self._times.setdefault(region.memory, _Times())


def _on_chip(regions: Iterable[Region]) -> list[Region]:
    return [r for r in regions if r.memory != DRAM and r.begin < r.end]
