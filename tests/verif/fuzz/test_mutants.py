"""Deliberate faults of the hardware, which a campaign must find.

Covers: verif/fuzz/campaign.py.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import hw
from hw.config import make_config
from verif.fuzz.campaign import run_cases
from verif.fuzz.generate import Generator
from verif.fuzz.good import good_programs
from verif.fuzz.harness import build
from verif.system import accelerator

CONFIG = make_config(variant="baseline", preset="tiny")
ROOT = Path(hw.__file__).parent.parent

#: Name -> file, what stands in it, what stands there instead, and kinds of findings, one of which
#: must come.
MUTANTS = {
    "a window a granule too long": (
        "hw/dma/burst.py", "(last >= limit)", "(last > limit)", {"window-read", "window-write"},
    ),
    "addresses wrap at the end of the address space": (
        "hw/dma/burst.py", " | last[address_width - low :].any()", "",
        {"window-read", "window-write"},
    ),
    "what nobody asked for waits for ever": (
        "hw/bus/axi_mux.py", "channel.data.ready | ~owed[index]", "channel.data.ready",
        {"stray-held", "owed", "good-hang", "good-error", "no-end"},
    ),
    "beats that are owed are not sent": (
        "hw/dma/store.py", "due.r_rdy & (unpacker.o.valid | blank)", "due.r_rdy & unpacker.o.valid",
        {"no-end", "owed", "good-hang"},
    ),
    "everything is cleared while answers are owed": (
        "hw/control/sequencer.py", "with m.If(self.bus_busy.any()):", "with m.If(0):",
        {"axi-owed", "axi-wlast", "axi-idle", "good-error", "good-data", "good-hang"},
    ),
}  # fmt: skip


def mutated(folder, place, old, new) -> str:
    """The accelerator's Verilog with a change of one file."""
    shutil.copytree(ROOT / "hw", folder / "hw", ignore=shutil.ignore_patterns("__pycache__"))
    path = folder / place
    text = path.read_text()
    assert text.count(old) == 1, f"{place} has {old!r} {text.count(old)} times"
    path.write_text(text.replace(old, new))
    code = (
        "import json, sys; from hw.config import AdaGPConfig; "
        "from rtl_gen.generate import accelerator_verilog as emit; "
        f"sys.stdout.write(emit(AdaGPConfig(**{CONFIG.as_dict()!r}))[0])"
    )
    paths = os.pathsep.join([str(folder), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=os.environ | {"PYTHONPATH": paths},
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_found(name, seed, tmp_path):
    place, old, new, kinds = MUTANTS[name]
    text = mutated(tmp_path, place, old, new)
    goods = good_programs(CONFIG, seed)
    program = build(CONFIG, goods, simulator=accelerator.build(CONFIG, text=text))
    summary = run_cases(program, Generator(CONFIG, goods, seed=seed), 20_000, jobs=1)
    assert summary.found, f"nothing in {summary.cases} cases"
    assert summary.found[0].finding.kind in kinds, summary.found[0].finding
