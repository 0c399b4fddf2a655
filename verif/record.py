"""What a run of the accelerator leaves in its registers."""

from dataclasses import asdict, dataclass

__all__ = ["BASE", "RunRecord"]

BASE = 0x3000
"""Where the memory window starts unless a test says otherwise: not at zero, on purpose."""


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """What the registers say after a run.

    Members
    -------
    done, error : the causes of the interrupt
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
