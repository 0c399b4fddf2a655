"""Results of ``verif run networks`` that cannot be compared; the programs are those of verif."""

import json

import pytest

from compiler.training.compile import compile_training
from hw.config import make_config
from perf.validation.networks import _part, _program, compare_results
from verif.networks.reduced.reduced_networks import IMAGES, REDUCED

ROW = {
    "network": "vgg11", "method": "bp", "variant": "baseline", "preset": "tiny", "device": "rtl",
    "shape": [3, 32, 32], "width": 1 / 64, "error": "", "batches": [{"phase": "B"}],
}  # fmt: skip


def results(tmp_path, *rows):
    path = tmp_path / "results.json"
    path.write_text(json.dumps(rows))
    return compare_results(str(path))


def test_what_was_refused_is_left_out(tmp_path):
    rows = [ROW | {"error": "refused: too large"}, ROW | {"device": "emulator"}]
    assert list(results(tmp_path, *rows)) == []


def test_what_cannot_be_compared(tmp_path):
    with pytest.raises(ValueError, match="holds no results of `verif run networks --json`"):
        list(results(tmp_path, {"cycles": 3}))
    with pytest.raises(ValueError, match="the results of vgg11 have no counters"):
        list(results(tmp_path, ROW))
    counted = ROW | {"batches": [{"phase": "B", "counters": {}}]}
    with pytest.raises(ValueError, match="the memory of vgg11 paused"):
        list(results(tmp_path, counted | {"stall_share": 0.35}))
    with pytest.raises(ValueError, match="vgg11 ran with other settings than its preset's"):
        list(results(tmp_path, counted | {"configuration": "0123456789ab"}))


def test_the_program_is_that_of_the_run():
    """Without golden's numbers the same commands."""
    config = make_config(variant="baseline", preset="tiny")
    program = _program(ROW, config)
    model = REDUCED["vgg11"].make((3, 32, 32), 10, width=1 / 64).train()
    wanted = compile_training(model, config, (3, 32, 32), images=IMAGES, reuse=False)
    assert _part(program, "B").commands == wanted.commands
    beside = compile_training(
        model, config, (3, 32, 32), images=IMAGES, reuse=False, beside=True
    )  # fmt: skip
    assert beside.commands != wanted.commands
    assert _part(_program(ROW | {"beside": True}, config), "B").commands == beside.commands
