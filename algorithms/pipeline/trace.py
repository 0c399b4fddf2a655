"""What a stage did, in its order: for pictures, and to count steps."""

import time
from dataclasses import asdict, dataclass

__all__ = ["Pass", "Trace"]


@dataclass(frozen=True, kw_only=True)
class Pass:
    """A pass of a micro-batch through a stage.

    Members
    -------
    kind : "GP", "forward" or "backward"
    epoch, batch, micro_batch : from 0
    begin, end : seconds, on a clock that all processes of a machine share
    """

    kind: str
    epoch: int
    batch: int
    micro_batch: int
    begin: float
    end: float


class Trace:
    """The passes of a stage.

    Members
    -------
    passes : in the order in which they ended
    epoch, batch, kind : of the passes that come; ``kind`` of forward ones
    """

    def __init__(self) -> None:
        self.passes: list[Pass] = []
        self.epoch = self.batch = 0
        self.kind = "forward"

    def note(self, call, *, backward: bool, number: int):
        """The result of ``call()``, which is a pass of micro-batch ``number``."""
        begin = time.monotonic()
        result = call()
        self.passes.append(
            Pass(
                kind="backward" if backward else self.kind,
                epoch=self.epoch,
                batch=self.batch,
                micro_batch=number,
                begin=begin,
                end=time.monotonic(),
            )
        )
        return result

    def as_json(self) -> list[dict]:
        """Plain values."""
        return [asdict(each) for each in self.passes]
