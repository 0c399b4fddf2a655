"""The proofs, by name."""

from verif.prove.proof import Proof

from .axi_lite import AXI_LITE
from .axi_mux import READ_MUX, WRITE_MUX
from .batch_control import BATCH_CONTROL
from .batch_schedule import BATCH_SCHEDULE
from .command_queue import COMMAND_QUEUE
from .command_reader import COMMAND_READER
from .fetch import FETCH
from .fifo import BUFFERED_FIFO, FIFO
from .planner import PLANNER
from .semaphores import SEMAPHORES
from .stream_register import HALF_RATE_REGISTER, SKID_BUFFER

__all__ = ["PROOFS"]

PROOFS: dict[str, Proof] = {
    proof.name: proof
    for proof in (
        PLANNER,
        FETCH,
        COMMAND_READER,
        FIFO,
        BUFFERED_FIFO,
        SKID_BUFFER,
        HALF_RATE_REGISTER,
        SEMAPHORES,
        COMMAND_QUEUE,
        AXI_LITE,
        READ_MUX,
        WRITE_MUX,
        BATCH_SCHEDULE,
        BATCH_CONTROL,
    )
}
