"""Accesses of a batch, from the counters."""

from collections.abc import Mapping
from dataclasses import dataclass

from hw.config import AdaGPConfig
from perf.counted.count import BatchCount

__all__ = ["Traffic", "traffic_of"]


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Of a batch.

    Members
    -------
    dram_read, dram_written : bytes
    cycles : of the batch
    vectors : core -> vectors through its array
    reads, writes : core -> cause -> words of its buffer, at most
    sums_read, sums_written : core -> vectors of sums
    """

    dram_read: int
    dram_written: int
    cycles: int
    vectors: Mapping[int, int]
    reads: Mapping[int, Mapping[str, float]]
    writes: Mapping[int, Mapping[str, float]]
    sums_read: Mapping[int, int]
    sums_written: Mapping[int, int]


def traffic_of(batch: BatchCount, config: AdaGPConfig) -> Traffic:
    """Accesses as far as counters know them; "at most" where they do not.

    MATMUL reads a word for each vector (none for padding), WEIGHTS ``rows`` words for each block of
    a K tile. Bytes to and from DRAM pass the buffer once; two cores share them as their LOADs and
    STOREs are at work. POST reads a vector of sums in every cycle at work and writes its groups,
    VECTOR reads up to three groups of float32 and writes one in every cycle at work.
    """
    count = batch.counters
    cores = config.cores
    loads = {core.index: count[f"CORE{core.index}_LOAD_BUSY"] for core in cores}
    stores = {core.index: count[f"CORE{core.index}_STORE_BUSY"] for core in cores}
    reads, writes, sums_read = {}, {}, {}
    for core in cores:
        own, n = core.index, f"CORE{core.index}_"
        post = count[n + "POST_BUSY"] - count[n + "POST_STALL"]
        vector = count.get(n + "VECTOR_BUSY", 0) - count.get(n + "VECTOR_STALL", 0)
        group = core.post_lanes * core.operand_width / core.word_width
        wide = group * core.chunks_per_wide
        blocks = -(-core.columns // core.rows)
        reads[own] = {
            "MATMUL": float(count[n + "VECTORS"]),
            "WEIGHTS": float(count[n + "TILES"] * core.rows * blocks),
            "STORE": count["WRITE_BYTES"] * _share(stores, own) / core.word_bytes,
            "VECTOR": 3 * wide * vector,
        }
        writes[own] = {
            "LOAD": count["READ_BYTES"] * _share(loads, own) / core.word_bytes,
            "POST": group * core.post_groups * post,
            "VECTOR": wide * vector,
        }
        sums_read[own] = count[n + "VECTORS"] + post
    vectors = {core.index: count[f"CORE{core.index}_VECTORS"] for core in cores}
    return Traffic(
        dram_read=count["READ_BYTES"], dram_written=count["WRITE_BYTES"], cycles=batch.cycles,
        vectors=vectors, reads=reads, writes=writes, sums_read=sums_read, sums_written=vectors,
    )  # fmt: skip


def _share(busy: Mapping[int, int], core: int) -> float:
    total = sum(busy.values())
    return busy[core] / total if total else float(core == 0)
