"""Energy of batches by cause, of pairs and epochs."""

from collections.abc import Mapping
from dataclasses import dataclass

from golden.prediction.schedule import Phase, ScheduleConfig
from perf.counted import Count

from .prices import Prices
from .traffic import Traffic, traffic_of

__all__ = ["CAUSES", "NetworkEnergy", "energy_of", "epoch_share", "network_energy"]

#: What takes energy, in the order in which it is shown.
CAUSES = ("DRAM read", "DRAM written", "buffer: array", "buffer: DRAM", "buffer: POST, VECTOR",
          "sums", "clock and leakage", "logic at work")  # fmt: skip
_MICRO = 1e-6  # pJ to µJ


def energy_of(traffic: Traffic, prices: Prices, dram_pj_per_bit: float) -> dict[str, float]:
    """Cause -> µJ of a batch."""
    found = dict.fromkeys(CAUSES, 0.0)
    found["DRAM read"] = 8 * traffic.dram_read * dram_pj_per_bit
    found["DRAM written"] = 8 * traffic.dram_written * dram_pj_per_bit
    found["clock and leakage"] = traffic.cycles * prices.always
    for core, vectors in traffic.vectors.items():
        read, write = traffic.reads[core], traffic.writes[core]
        found["buffer: array"] += (read["MATMUL"] + read["WEIGHTS"]) * prices.read[core]
        found["buffer: DRAM"] += read["STORE"] * prices.read[core]
        found["buffer: DRAM"] += write["LOAD"] * prices.write[core]
        found["buffer: POST, VECTOR"] += read["VECTOR"] * prices.read[core]
        found["buffer: POST, VECTOR"] += (write["POST"] + write["VECTOR"]) * prices.write[core]
        found["sums"] += traffic.sums_read[core] * prices.sum_read[core]
        found["sums"] += traffic.sums_written[core] * prices.sum_write[core]
        found["logic at work"] += vectors * prices.at_work[core]
    return {cause: own * _MICRO for cause, own in found.items()}


def epoch_share(epochs: int | None) -> float:
    """Share of Phase GP of all batches: of a whole training of so many epochs by schedule A, or
    None for B, one batch of each phase."""
    if epochs is None:
        return 0.5
    phases = list(ScheduleConfig().phases(epochs, 60))
    return phases.count(Phase.GP) / len(phases)


@dataclass(frozen=True, kw_only=True)
class NetworkEnergy:
    """A network on a variant.

    Members
    -------
    network, variant, images : which
    batches : "bp" and, with predictions, "gp" -> cause -> µJ
    dram_bytes : of the same batches
    """

    network: str
    variant: str
    images: int
    batches: Mapping[str, Mapping[str, float]]
    dram_bytes: Mapping[str, int]

    def mean(self, share: float, causes: tuple[str, ...] = CAUSES) -> float:
        """µJ of a batch, if ``share`` of them are of Phase GP."""
        own = {name: sum(batch[cause] for cause in causes) for name, batch in self.batches.items()}
        return own["bp"] if "gp" not in own else (1 - share) * own["bp"] + share * own["gp"]

    def mean_bytes(self, share: float) -> float:
        """The same of the bytes to and from DRAM."""
        own = self.dram_bytes
        return own["bp"] if "gp" not in own else (1 - share) * own["bp"] + share * own["gp"]


def network_energy(found: Count, prices: Prices, dram_pj_per_bit: float) -> NetworkEnergy:
    """Of what was counted."""
    config = found.cell.config
    traffic = {name: traffic_of(batch, config) for name, batch in found.batches.items()}
    return NetworkEnergy(
        network=found.cell.network, variant=found.cell.variant, images=found.cell.batch,
        batches={name: energy_of(own, prices, dram_pj_per_bit) for name, own in traffic.items()},
        dram_bytes={n: own.dram_read + own.dram_written for n, own in traffic.items()},
    )  # fmt: skip
