"""A tiny standard-cell library, and netlists of it, whose numbers can be worked out by hand."""

import json
from pathlib import Path

import pytest

from synth.asic.liberty import read as liberty

TINY = Path(__file__).with_name("asic") / "tiny.lib"

#: Net of the clock in netlists written by hand.
CLK = 2


def port(direction, *bits):
    """A port as in Yosys's JSON."""
    return {"direction": direction, "bits": list(bits)}


def cell(kind, **wires):
    """A cell as in Yosys's JSON; a pin is at one net or at a list of nets."""
    return {
        "type": kind,
        "connections": {
            pin: list(bits) if isinstance(bits, list | tuple) else [bits]
            for pin, bits in wires.items()
        },
    }


@pytest.fixture
def old_entries():
    """Function that makes all entries of a result cache old, and says the day that they have."""

    def change(directory):
        paths = list(Path(directory).glob("*.json"))
        assert paths, f"no entries in {directory}"
        for path in paths:
            entry = json.loads(path.read_text())
            path.write_text(json.dumps(entry | {"date": "2001-02-03T04:05:06+00:00"}))
        return "2001-02-03"

    return change


@pytest.fixture(scope="session")
def tiny_path() -> Path:
    return TINY


@pytest.fixture(scope="session")
def tiny():
    return liberty.read(TINY)
