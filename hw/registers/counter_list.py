"""The performance counters: name, unit, what one count means."""

from .model import Counter

__all__ = ["counter_list"]


def counter_list(config):
    """The counters of an :class:`~hw.config.AdaGPConfig` in address order. Those of cores stand
    still while a BATCH waits."""

    def counter(name, unit, doc, **options):
        return Counter(name=name, unit=unit, doc=doc, **{"event": name.lower(), **options})

    beat = config.beat_bytes
    yield counter("CYCLES", "cycles", "from the start to the interrupt", event=None)
    yield counter("COMMANDS", "commands", "put into a queue, or HALT, BATCH or REPEAT")
    yield counter("READ_BEATS", "beats", "received from memory")
    yield counter("READ_BYTES", "bytes", "received from memory", event="read_beats", step=beat)
    yield counter("READ_STALL", "cycles", "a read request waited to be accepted")
    yield counter("WRITE_BEATS", "beats", "sent to memory")
    yield counter("WRITE_BYTES", "bytes", "sent to memory, strobe set", width=beat.bit_length())
    yield counter("WRITE_STALL", "cycles", "a write request or beat waited to be accepted")
    yield counter("BATCHES_GP", "batches", "done in Phase GP")
    yield counter("BATCH_WAIT", "cycles", "a BATCH waited for BATCHES_READY")
    for core in config.cores:
        n = f"CORE{core.index}_"
        yield counter(n + "VECTORS", "vectors", "entered the PE array, each for one cycle")
        yield counter(n + "TILES", "tiles", "K tiles computed")
        yield counter(n + "STALL_WEIGHTS", "cycles", "the array waited for weights")
        yield counter(n + "STALL_BUFFER", "cycles", "the array waited for a buffer bank")
        yield counter(n + "STALL_HAZARD", "cycles", "the array waited for its own last sum")
        yield counter(
            n + "STALL_COMMAND",
            "cycles",
            "the array had no command, its semaphore or a full transposer",
        )
        yield counter(n + "POST_BUSY", "cycles", "post-processing worked on a command")
        yield counter(n + "POST_STALL", "cycles", "post-processing waited for a memory port")
        yield counter(n + "LOAD_BUSY", "cycles", "a LOAD was at work")
        yield counter(n + "STORE_BUSY", "cycles", "a STORE was at work")
        yield counter(n + "VECTOR_BUSY", "cycles", "a VECTOR was at work")
        yield counter(n + "VECTOR_STALL", "cycles", "VECTOR waited for a memory port")
        yield counter(
            n + "VECTOR_REJECTED",
            "tiles",
            "in which the guard found an infinity or NaN: their guarded commands did nothing",
        )
        yield counter(n + "LOSS_BUSY", "cycles", "a LOSS was at work")
