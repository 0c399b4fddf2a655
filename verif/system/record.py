"""What a run of the accelerator leaves in its registers."""

from dataclasses import asdict, dataclass

__all__ = ["BASE", "BatchRecord", "RunRecord"]

BASE = 0x3000
"""Where the memory window starts unless a test says otherwise: not at zero, on purpose."""


@dataclass(frozen=True, kw_only=True)
class BatchRecord:
    """What the registers say about a batch of a run.

    Members
    -------
    phase : name of a :class:`~hw.control.batch_schedule.PhaseCode`
    epoch, epoch_batch : position of the batch behind it
    cycles : from the end of the batch before, or the start, to the end of this one, without those
        of waiting for the host; of the last batch to the interrupt
    counters : what this batch has added to them; CYCLES is ``cycles``, BATCH_WAIT 0
    """

    phase: str
    epoch: int
    epoch_batch: int
    cycles: int
    counters: dict

    def as_dict(self):
        """Plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """What the registers say after a run.

    Members
    -------
    done, error, stopped : the causes of the interrupt
    code, unit, address : the error registers; names and number
    counters : name -> value
    flags : one dictionary per core
    start_cycle : simulation cycle in which the run was started
    cycles : from there to the interrupt, as the test bench saw it
    seconds : wall time of these cycles
    protocol_errors : violations of AXI rules that the memory model has seen since the reset
    both_cores : cycles of this run in which the arrays of both cores took a vector
    """

    done: bool
    error: bool
    stopped: bool
    code: str
    unit: str
    address: int
    counters: dict
    flags: list
    start_cycle: int
    cycles: int
    seconds: float
    protocol_errors: int
    both_cores: int

    def as_dict(self):
        """Plain values, for JSON."""
        return asdict(self)
