"""Training runs: what each method does, going on after an interruption, command line, reports.

Covers: algorithms/experiments/methods.py, algorithms/experiments/report.py,
algorithms/experiments/report_plots.py.
"""

import json
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn
from torch.fx.experimental._config import patch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from algorithms.__main__ import main
from algorithms.common.devices import best_device
from algorithms.data.datasets import load_images
from algorithms.experiments.experiment import Experiment, run
from algorithms.experiments.methods import METHODS
from algorithms.experiments.report import compare, read_records, write_report
from algorithms.networks.registry import MODELS
from golden.prediction.schedule import ScheduleConfig, Stage

#: Four epochs of five batches: warm-up, 3:1, and then 1:1 twice.
SCHEDULE = ScheduleConfig(warm_up=1, ladder=(Stage(gp=3, epochs=1), Stage(gp=1, epochs=None)))
SMALL = {"epochs": 4, "batch": 16, "train_images": 90, "test_images": 60, "schedule": SCHEDULE}
ARGUMENTS = (
    "train --epochs 2 --batch 16 --train-images 50 --test-images 60 --warm-up 1 --ladder 2:1"
).split()
#: Batches of Phase BP and Phase GP of the four epochs.
COUNTS = dict.fromkeys(METHODS, (10, 10)) | {"bp": (20, 0), "skip-time": (13, 7)}


def small(method, seed, **changes):
    return Experiment(method=method, seed=seed, **(SMALL | changes))


def comparable(record):
    return {name: value for name, value in record.items() if name != "seconds"}


@pytest.mark.parametrize("method", METHODS)
def test_methods(tmp_path, seed, method):
    record = run(small(method, seed), directory=tmp_path)
    assert record["batches"] == 5 and len(record["epochs"]) == 4 and record["held"] == 0
    gp = record["phases"].count("G")
    assert (len(record["phases"]) - gp, gp) == COUNTS[method]
    names = set() if METHODS[method].predictor is None else {"0", "3", "7", "10", "15"}
    if method == "adagp-paper":
        names.add("17")
    for number, epoch in enumerate(record["epochs"]):
        assert set(epoch["layers"]) == names and 0 <= epoch["accuracy"] <= 1
        factor = {1: 4, 2: 2, 3: 2}.get(number, 1) if method == "skip-lr" else 1
        assert epoch["learning_rate"] == METHODS[method].learning_rate * factor
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]


def test_backpropagation_is_plain_torch(tmp_path, seed):
    """The record's losses and accuracies, from a loop written down here."""
    record = run(small("bp", seed, epochs=3, momentum=0.8, weight_decay=1e-3), directory=tmp_path)
    data = load_images("digits", seed=seed, train=90, test=60)
    torch.manual_seed(seed)
    model = MODELS["vgg"]((1, 8, 8), 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.8, weight_decay=1e-3)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for epoch in range(3):
        order = np.random.default_rng([seed, epoch]).permutation(90)
        losses = []
        for first in range(0, 80, 16):
            chosen = torch.from_numpy(order[first : first + 16])
            optimizer.zero_grad()
            loss = functional.cross_entropy(
                model.train()(data.train_images[chosen]), data.train_labels[chosen]
            )
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        right = model.eval()(data.test_images).argmax(1) == data.test_labels
        got = record["epochs"][epoch]
        assert got["loss"] == sum(losses) / 5, epoch
        assert got["accuracy"] == int(right.sum()) / 60, epoch
    torch.set_num_threads(threads)


@pytest.mark.parametrize("method", ["adagp", "adagp-paper", "mean"])
def test_going_on_changes_no_bit(tmp_path, seed, method, monkeypatch):
    """Of a network that draws random numbers, too."""
    monkeypatch.setitem(
        MODELS, "random", lambda *shapes: nn.Sequential(nn.Dropout(0.1), MODELS["vgg"](*shapes))
    )
    experiment = small(method, seed, model="random")
    whole = run(experiment, directory=tmp_path / "a")
    state, lines = torch.get_rng_state(), []
    assert run(experiment, directory=tmp_path / "b", stop_after=2) is None
    assert [path.suffix for path in (tmp_path / "b").iterdir()] == [".pt"]
    torch.rand(3)
    parts = run(experiment, directory=tmp_path / "b", report=lines.append)
    assert "goes on after epoch 2" in lines[0] and len(lines) == 3
    assert comparable(parts) == comparable(whole)
    torch.set_rng_state(state)
    again = run(experiment, directory=tmp_path / "b", report=lines.append)
    assert again == parts and lines[3].endswith("done before") and len(lines) == 4
    assert torch.equal(state, torch.get_rng_state())


class MetaNumbers(TorchDispatchMode):
    """Numbers that are read from the meta device are 1."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten._local_scalar_dense.default and args[0].is_meta:
            return 1.0 if args[0].is_floating_point() else 1
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("method", METHODS)
def test_everything_is_on_one_device(tmp_path, seed, method, monkeypatch):
    """On torch's meta device, which any machine has: an operand from the CPU would be refused."""
    monkeypatch.setattr("algorithms.common.devices.DEVICES", ("cpu", "meta"))
    experiment = small(method, seed, device="meta")
    with MetaNumbers(), patch(meta_nonzero_assume_all_nonzero=True):
        assert run(experiment, directory=tmp_path, stop_after=2) is None
        record = run(experiment, directory=tmp_path)
    gp = record["phases"].count("G")
    assert (len(record["phases"]) - gp, gp) == COUNTS[method]


@pytest.mark.skipif(best_device() != "cuda", reason="needs a CUDA device")
@pytest.mark.parametrize("method", ["adagp", "mean"])
def test_cuda(tmp_path, seed, method):
    """As on the CPU, but for rounding; so the first loss is compared, which no step precedes."""
    first = {"epochs": 1, "batch": 90}
    mine, reference = (
        run(small(method, seed, device=device, **first), directory=tmp_path)["epochs"][0]["loss"]
        for device in ("cuda", "cpu")
    )
    assert mine == pytest.approx(reference, rel=1e-3)
    assert run(small(method, seed, device="cuda"), directory=tmp_path, stop_after=2) is None
    state = torch.cuda.get_rng_state()
    record = run(small(method, seed, device="cuda"), directory=tmp_path)
    assert len(record["epochs"]) == 4 and record["held"] == 0
    assert torch.equal(state, torch.cuda.get_rng_state())


def test_a_run_that_diverges_ends_with_a_record(tmp_path, seed):
    """JSON has no NaN: the mean loss is null then, and so are what guesses are measured by."""
    record = run(small("adagp", seed, learning_rate=1e30), directory=tmp_path)
    assert record["epochs"][0]["loss"] is None
    assert record["epochs"][0]["layers"]["0"]["mse"] is None
    assert read_records(tmp_path) == [record]


def test_other_settings_are_other_runs(tmp_path, seed):
    first = run(small("skip", seed, epochs=1), directory=tmp_path)
    second = run(small("skip", seed, epochs=1, learning_rate=0.02), directory=tmp_path)
    assert first["identity"] != second["identity"] and len(list(tmp_path.iterdir())) == 2


def test_a_plateau_lowers_the_rate(tmp_path, seed):
    """The same batch, and steps that lower no loss by torch's threshold of a part in 10000."""
    experiment = small(
        "adagp-paper", seed, epochs=14, batch=90, learning_rate=1e-7,
        schedule=ScheduleConfig(warm_up=14),
    )  # fmt: skip
    assert run(experiment, directory=tmp_path, stop_after=6) is None
    record = run(experiment, directory=tmp_path)
    # The first epoch is the best one, ten more are waited for, the next is one too many.
    assert [epoch["learning_rate"] for epoch in record["epochs"]] == [1e-7] * 12 + [
        pytest.approx(1e-8)
    ] * 2


def test_messages(tmp_path, seed, monkeypatch):
    with pytest.raises(ValueError) as error:
        Experiment(model="x", method="y", seed=-1, epochs=0, batch=1, learning_rate=0)
    assert str(error.value) == (
        f"model must be one of {', '.join(MODELS)}, not 'x'; method must be one of "
        f"{', '.join(METHODS)}, not 'y'; seed must be at least 0, not -1; epochs must be at least "
        "1, not 0; batch must be at least 2, not 1; learning_rate must be a number above 0, not 0"
    )
    with pytest.raises(ValueError, match="momentum must be from 0 to below 1, not 1; weight_decay"):
        Experiment(momentum=1, weight_decay=-1)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ValueError, match="device must be cpu: torch has no CUDA device here"):
        small("bp", seed, device="cuda")
    with pytest.raises(ValueError, match="device must be one of cpu, cuda, not 'tpu'"):
        small("bp", seed, device="tpu")
    with pytest.raises(ValueError, match="batch must be at most 90, the number of training images"):
        run(small("bp", seed, batch=91), directory=tmp_path)


@pytest.mark.parametrize("damage", ["cut", "rubbish", "empty"])
def test_damaged_checkpoint(tmp_path, seed, damage):
    run(small("skip", seed), directory=tmp_path, stop_after=1)
    (path,) = tmp_path.iterdir()
    content = path.read_bytes()
    path.write_bytes({"cut": content[:-500], "rubbish": b"nothing", "empty": b""}[damage])
    with pytest.raises(ValueError, match=f"checkpoint {path} is damaged; delete it to start again"):
        run(small("skip", seed), directory=tmp_path)


def test_a_network_of_the_paper_learns_from_a_directory(tmp_path, rng, capsys):
    """Two batches of ResNet18, one of them predicted, on files as CIFAR-100 has them."""
    for name, count in (("train.bin", 8), ("test.bin", 3)):
        rows = rng.integers(0, 256, (count, 3074), np.uint8)
        rows[:, 1] = np.arange(count) % 5
        (tmp_path / name).write_bytes(rows.tobytes())
    options = "--model resnet18 --epochs 1 --batch 4 --warm-up 0 --ladder 1:1 --output".split()
    assert main(["train", "--data", str(tmp_path), *options, str(tmp_path / "out")]) == 0
    assert "epoch   1/1  BP   1  GP   1" in capsys.readouterr().out
    (record,) = read_records(tmp_path / "out")
    (epoch,) = record["epochs"]
    # The first batch is predicted, by a predictor that has seen nothing: all layers are held.
    assert record["phases"] == "GB" and record["held"] == len(epoch["layers"]) == 20
    assert 0.5 < epoch["loss"] < 5 and all(layer["mse"] > 0 for layer in epoch["layers"].values())


def test_command_line(tmp_path, capsys):
    arguments = [*ARGUMENTS, "--output", str(tmp_path), "--method", "bp", "adagp", "--seeds", "2"]
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 * 2 * 2 + 1
    assert "digits-vgg-bp-seed1-" in lines[0] and "epoch   1/2  BP   3  GP   0" in lines[0]
    assert "digits-vgg-adagp-seed2-" in lines[7] and "epoch   2/2  BP   1  GP   2" in lines[7]
    assert main(arguments) == 0
    assert capsys.readouterr().out.count("done before") == 4

    assert main(["report", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert "digits, vgg, 2 epochs, batch 16, warm-up 1, 2:1" in output
    for name in ("report.md", "accuracy-1.png", "predictions-1-adagp-0.01.png"):
        assert str(tmp_path / name) in output and (tmp_path / name).stat().st_size > 100
    assert not list(tmp_path.glob("predictions-1-bp*"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "nowhere"], "data must be digits, mnist5k, fashion-mnist or a directory"),
        (["--seeds", "0"], "seeds must be at least 1, not 0"),
        (["--epochs", "0"], "epochs must be at least 1, not 0"),
        (["--warm-up", "-1"], "warm_up must be an integer of at least 0, not -1"),
        (["--ladder", "4:1x4,3"], "ladder: '3' must be GP:BPxEPOCHS or GP:BP"),
        (
            ["--ladder", "4:0"],
            "ladder: '4:0' must be GP:BPxEPOCHS or GP:BP, as in 4:1x4 (Stage: bp",
        ),
        (["--ladder", "4:1,1:1"], "only the last stage of ladder may have no end"),
    ],
)
def test_command_line_faults(tmp_path, capsys, arguments, message):
    assert main([*ARGUMENTS, *arguments, "--output", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("algorithms: ") and message in error and error.count("\n") == 1


def record(method, seed, accuracies, phases, **changes):
    """A record as run leaves it, with one layer."""
    experiment = {"method": method, "seed": seed, "learning_rate": 0.01, "epochs": len(accuracies)}
    experiment |= dict.fromkeys(("momentum", "weight_decay", "train_images", "test_images"))
    experiment |= {"data": "digits", "model": "vgg", "batch": 8, "device": "cpu"}
    experiment["schedule"] = {"warm_up": 1, "convert_every": 0, "ladder": []}
    layer = {"mse": 1e-3, "mape": 120.0, "cosine": 0.1, "gate": 0.5}
    nothing = dict.fromkeys(layer)
    layers = {"a": layer if phases.count("B") else nothing, "b": nothing}
    epochs = [{"accuracy": accuracy, "layers": layers} for accuracy in accuracies]
    batches = len(phases) // len(accuracies)
    return {"experiment": experiment | changes, "phases": phases, "epochs": epochs,
            "batches": batches}  # fmt: skip


def test_table():
    comparisons = compare(
        [
            record("skip", 1, [0.5, 0.25], "WWWGGB"),
            record("adagp", 2, [0.5, 0.875], "WWWGGB"),
            record("adagp", 1, [0.5, 0.625], "WWWGGB"),
            record("adagp", 1, [0.5, 0.5], "WWWGGB", learning_rate=0.001),
            record("bp", 1, [0.5, 0.75], "BBBBBB", batch=16),
        ]
    )
    assert [comparison.settings["batch"] for comparison in comparisons] == [16, 8]
    runs = comparisons[1].methods[1].records
    assert [entry["experiment"]["seed"] for entry in runs] == [1, 2]
    # Two values 25 % apart: 12.5 · √2 with n − 1. Time: four batches and two at a third.
    assert comparisons[1].table().splitlines()[2:] == [
        "| adagp | 0.001 | 1 | 50.00 | 4 | 2 | 5 |",
        "| adagp | 0.01 | 2 | 75.00 ± 17.68 | 4 | 2 | 5 |",
        "| skip | 0.01 | 1 | 25.00 | 4 | 2 | 4 |",
    ]


def test_plots_of_runs_with_gaps(tmp_path):
    """Epochs without Phase BP, or with errors that are not finite, have no values."""
    for number, entry in enumerate((record("adagp", 1, [0.5, 0.5], "GGGGGB"),
                                    record("adagp", 2, [0.5, 0.5], "GGGGGG"))):  # fmt: skip
        (tmp_path / f"{number}.json").write_text(json.dumps(entry))
    _, files = write_report(tmp_path)
    assert [path.name for path in files] == [
        "report.md", "accuracy-1.png", "predictions-1-adagp-0.01.png"
    ]  # fmt: skip
    assert all(path.read_bytes()[1:4] == b"PNG" for path in files[1:])


def test_phase_spans():
    from algorithms.experiments.report_plots import phase_spans

    assert phase_spans("WWGGGB") == [("W", 0, 2), ("G", 2, 5), ("B", 5, 6)]


def test_a_legend_of_many_layers():
    from algorithms.experiments.report_plots import evenly

    assert evenly([*range(16)], 16) == [*range(16)] and evenly([], 3) == []
    chosen = evenly([*range(200)], 16)
    assert len(set(chosen)) == 16 and chosen[0] == 0 and chosen[-1] == 199
    assert {second - first for first, second in pairwise(chosen)} <= {13, 14}


def test_report_faults(tmp_path, capsys):
    assert main(["report", str(tmp_path)]) == 2
    assert "no records in" in capsys.readouterr().err
    entry = record("skip", 1, [0.5, 0.25], "WWWGGB", epochs=3)
    older = record("skip", 1, [0.5, 0.25], "WWWGGB")
    del older["experiment"]["device"]
    for content in ("{", "[]", "{}", json.dumps(entry), json.dumps(older)):
        (tmp_path / "a.json").write_text(content)
        with pytest.raises(ValueError, match="a.json is not the record of a finished run"):
            read_records(tmp_path)
