"""``python -m perf energy``: energy of batches and epochs (Figure 21 of the paper)."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console

import paper
from compiler.networks.registry import usual_method
from hw.config import VARIANTS
from perf.area.verdict import EPOCHS
from perf.counted import Cell
from perf.counted.command import store_of
from perf.counted.tables import NETWORKS, add_batch, add_documents, fill_unless_kept, show
from synth.study.tables import table

from .batches import CAUSES, NetworkEnergy, epoch_share, network_energy
from .prices import DRAM_PJ_PER_BIT, DRAM_SOURCES, prices_of

__all__ = ["MEMORY", "add_energy"]

#: The causes that the paper counts: accesses of memories.
MEMORY = tuple(cause for cause in CAUSES if cause.startswith(("DRAM", "buffer", "sums")))
#: Images of an epoch: CIFAR's.
_IMAGES = 50_000


def add_energy(commands) -> None:
    """Add the command to those of a parser."""
    command = commands.add_parser(
        "energy",
        help="energy of batches and epochs by cause (Figure 21 of the paper)",
        description="Counted bytes of DRAM, accesses of the buffers and cycles, each times what it "
        "costs: pJ per bit of DRAM as cited, CACTI's energy of the SRAM, power of the synthesised "
        "logic. Preset paper.",
        epilog="example: python -m perf energy --network vgg13 --batch 16 --plot energy.png",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(action=_energy)
    add_batch(command)
    add = command.add_argument
    add("--dram", type=float, default=DRAM_PJ_PER_BIT, metavar="PJ",
        help="pJ per bit of DRAM in the tables by cause (default: %(default)s)")  # fmt: skip
    add("--quick", action="store_true",
        help="one network, a batch of 4: within 10 minutes")  # fmt: skip
    add("--plot", metavar="FILE.png", help="write a bar for every batch")
    add_documents(command)


def _energy(options) -> int:
    if not options.dram > 0:
        raise ValueError(f"dram must be above 0 pJ per bit, not {options.dram}")
    networks = options.network or list(NETWORKS[-1:] if options.quick else NETWORKS)
    images = min(options.batch, 4) if options.quick else options.batch
    cells = [
        Cell(network=name, input=options.input, batch=images, variant=variant, width=options.width,
             method=usual_method(variant))
        for name in networks for variant in VARIANTS
    ]  # fmt: skip
    console, store = Console(highlight=False), store_of(options)
    missing = fill_unless_kept(store, cells, options, console)
    counts = [found for cell in cells if (found := store.get(cell)) and found.reason is None]
    swept = {
        price: [network_energy(found, prices_of(found.cell.variant), price) for found in counts]
        for price in sorted({*DRAM_SOURCES, options.dram})
    }
    found = swept[options.dram]
    if not found:
        raise ValueError("nothing has been counted of these networks")
    lines = [
        f"## Energy of a batch of {images} by cause, DRAM at {options.dram:g} pJ per bit", "",
        *batch_lines(found),
        "## Against the baseline", "", *saving_lines(swept),
        *(f"- {price:g} pJ per bit: {source}" for price, source in DRAM_SOURCES.items()), "",
    ]  # fmt: skip
    document = {
        "dram_sources": DRAM_SOURCES, "paper": paper.figures()["figure_21_energy"],
        "energies": {price: [asdict(each) for each in own] for price, own in swept.items()},
    }  # fmt: skip
    show(options, console, lines, missing, document)
    if options.plot:
        from .picture import plot_energy

        plot_energy(found, options.dram, options.plot)
    return 0


def batch_lines(found: Sequence[NetworkEnergy]) -> list[str]:
    """µJ of every batch by cause."""
    rows = [
        [each.network, each.variant, phase.upper(), *(f"{batch[cause]:,.0f}" for cause in CAUSES),
         f"{sum(batch.values()):,.0f}"]
        for each in found for phase, batch in each.batches.items()
    ]  # fmt: skip
    return table(["network", "variant", "phase", *(f"{c}, µJ" for c in CAUSES), "all, µJ"], rows,
                 left=3)  # fmt: skip


def saving_lines(swept: dict[float, list[NetworkEnergy]]) -> list[str]:
    """Bytes, energy of memories and of everything beside the baseline's; an epoch's in joule."""
    steady, whole = epoch_share(None), epoch_share(EPOCHS)
    rows = []
    for price, found in swept.items():
        for each in found:
            base = _baseline(found, each.network)
            if base is None:
                continue
            batches = _IMAGES / each.images
            row = [
                each.network,
                each.variant,
                f"{price:g}",
                *(f"{each.mean(share) * batches / 1e6:,.0f}" for share in (whole, steady)),
            ]
            if each.variant == "baseline":
                rows.append([*row, *[""] * 4])
                continue
            change = [
                each.mean_bytes(steady) / base.mean_bytes(steady),
                each.mean(steady, MEMORY) / base.mean(steady, MEMORY),
                each.mean(steady) / base.mean(steady),
                each.mean(whole) / base.mean(whole),
            ]
            rows.append([*row, *(f"{100 * (own - 1):+.1f} %" for own in change)])
    mean = paper.figures()["figure_21_energy"]["mean_reduction_percent"]
    return [
        *table(["network", "variant", "DRAM pJ/bit", "epoch, A, J", "epoch, B, J", "DRAM bytes, B",
                "memories, B", "all, B", "all, A"], rows, left=2),
        f"An epoch has {_IMAGES:,} images. A: mean of {EPOCHS} epochs of the paper's schedule; B: "
        f"batches of Phase BP and GP in turn. Paper: memory accesses −{mean} % on the average. It "
        "counts maps and weights of the layers once for each use and nothing else; here the bytes "
        "are those that the programs move, with normalisation, weights in float32 and their "
        "momentum, and the predictor.",
        "",
    ]  # fmt: skip


def _baseline(found, network):
    for each in found:
        if each.network == network and each.variant == "baseline":
            return each
    return None
