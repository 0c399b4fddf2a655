"""What is queued and at work, as records that compiled loops read and write."""

import numpy as np

from hw.control.command_queue import IN_FLIGHT

__all__ = ["CORE", "ENDING", "QUEUE", "RUN"]

#: Most commands that a queue of a configuration may hold; those of a queue that are over or about
#: to be, and have not given their tokens.
_HELD, ENDING = 64, IN_FLIGHT

#: A queue and its engine. A command there is a number: its place in the program times the granules
#: of a block, plus the granule at which its data begins.
#:
#: ``held``, ``fifo``, ``pushed`` : commands behind the first one, and when they had arrived
#: ``head``, ``shown`` : the first one, -1 for none, and when it stands at the end of the queue
#: ``granted``, ``ready`` : it has its tokens, and from when on its engine may accept it
#: ``running``, ``accepted`` : what the engine works on, -1 for nothing, and since when it has it
#: ``free`` : since when the engine has nothing to do
#: ``begins``, ``left``, ``rate`` : when the work begins; cycles of it that are left, and how much
#:     of a cycle's work a cycle does
#: ``endings``, ``ending``, ``given`` : commands that are over, and when their tokens count
QUEUE = np.dtype(
    [
        (name, np.int64)
        for name in ("held", "head", "granted", "running", "endings")
    ]
    + [
        (name, np.float64)
        for name in ("shown", "ready", "free", "accepted", "begins", "left", "rate")
    ]
    + [
        ("fifo", np.int64, (_HELD,)), ("pushed", np.float64, (_HELD,)),
        ("ending", np.int64, (ENDING,)), ("given", np.float64, (ENDING,)),
    ]
)  # fmt: skip

#: A core: ``weights``, ``products``: WEIGHTS and MATMUL that have begun; when the first tile of the
#: last WEIGHTS is in the array, when the last MATMUL begins with its last tile; and what engines
#: have counted and moved.
CORE = np.dtype(
    [
        (name, np.int64)
        for name in (
            "weights", "products", "vectors", "tiles", "read_beats", "write_beats", "write_bytes",
        )
    ]
    + [
        (name, np.float64)
        for name in (
            "tile_ready", "tile_free", "busy_post", "busy_vector", "busy_loss", "busy_load",
            "busy_store", "stall_post", "stall_vector",
        )
    ]
)  # fmt: skip

#: The sequencer: ``place`` of the command that is next, ``time`` when it is looked at; commands
#: executed, and 64-bit words of the program that were read again.
RUN = np.dtype(
    [(name, np.int64) for name in ("place", "halted", "executed", "again")] + [("time", np.float64)]
)
