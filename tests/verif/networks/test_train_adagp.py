"""The digits that are learned by gradient prediction: batches and messages; the run itself is a
regression."""

import numpy as np
import pytest

from golden.prediction.schedule import Phase
from hw.config import make_config
from verif.__main__ import main
from verif.networks.adagp_run import AdaGPRun
from verif.networks.train_adagp import EPOCHS, SCHEDULE, train_adagp


class Simulated(Exception):
    """Stands where the RTL would begin."""


def test_batches_follow_the_schedule(monkeypatch, seed):
    """Warm-up, two of Phase GP to one of BP, one to one; with one learning rate."""
    runs = []

    def stop(run, loop, **options):
        runs.append((run, loop, options))
        raise Simulated

    monkeypatch.setattr(AdaGPRun, "simulate_loop", stop)
    config = make_config(variant="low", preset="tiny")
    with pytest.raises(Simulated):
        train_adagp(config, batches=12, images=3, seed=seed, latency=7)
    ((run, loop, options),) = runs
    letters = "".join(batch.phase.value for batch in run.batches)
    assert letters == "WWW" + "GGB" + "GBG" * 2
    assert loop.phases() == [Phase(letter) for letter in letters]
    assert options == {"seed": seed, "latency": 7}
    assert len({batch.optimizer.learning_rate for batch in run.batches}) == 1
    assert all(len(batch.images) == 3 for batch in run.batches)
    first = [batch.images.tobytes() for batch in run.batches]
    assert len(set(first)) == len(first)
    assert np.isfinite(run.expected[-1]["loss"].view(np.float32)).all()
    assert SCHEDULE.warm_up < EPOCHS


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--batches", "0"], "batches of train-adagp must be a multiple of 4, not 0"),
        (["--batches", "10"], "batches of train-adagp must be a multiple of 4, not 10"),
        (["--batch-size", "0"], "batch size must be from 1 to 1437, not 0"),
        (["--preset", "ulx3s"], "no engines for training"),
        (["--format", "int8"], "float format"),
    ],
)
def test_messages(arguments, message, capsys):
    assert main(["run", "train-adagp", "--variant", "baseline", *arguments]) == 2
    assert message in capsys.readouterr().err
