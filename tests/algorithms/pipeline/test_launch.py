"""Processes of a pipeline: their weights, what happens when one is killed, the command line.

Covers: algorithms/pipeline/command.py, algorithms/pipeline/late.py, algorithms/pipeline/plan.py,
algorithms/pipeline/single.py, algorithms/pipeline/trace.py, algorithms/pipeline/worker.py.
"""

import json
import os
import signal
import threading
import time

import pytest
import torch

from algorithms.__main__ import main
from algorithms.pipeline.launch import PipelineError, finished_epochs, read_stages, train_pipeline
from algorithms.pipeline.plan import PipelinePlan
from algorithms.pipeline.single import train_single
from algorithms.pipeline.worker import run_stage

SMALL = {"batch": 16, "train_images": 48, "test_images": 20, "micro_batches": 2, "stages": 2}


def assert_same(plan, directory):
    for found, wanted in zip(read_stages(plan, directory), train_single(plan), strict=True):
        for name, value in wanted.state_dict().items():
            assert torch.equal(found.state_dict()[name], value), name


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"schedule": "async", "braking": 0.5}, id="async-braking"),
        pytest.param({"schedule": "gpipe", "stages": 4}, id="gpipe-4", marks=pytest.mark.long),
        pytest.param({"schedule": "async", "stages": 4}, id="async-4", marks=pytest.mark.long),
    ],
)
def test_weights_are_those_of_one_process(settings, tmp_path, seed):
    plan = PipelinePlan(seed=seed, **SMALL | settings)
    train_pipeline(plan, tmp_path)
    assert_same(plan, tmp_path)
    assert finished_epochs(plan, tmp_path) == plan.epochs
    train_pipeline(plan, tmp_path)  # there is nothing left to do


def test_a_killed_process(tmp_path, seed):
    """The message names it; the run goes on from its last epoch and ends with the same weights."""
    plan = PipelinePlan(seed=seed, epochs=3, **SMALL)

    def kill(processes):
        def wait():
            while finished_epochs(plan, tmp_path) == 0:
                time.sleep(0.01)
            os.kill(processes[1].pid, signal.SIGKILL)

        threading.Thread(target=wait).start()

    with pytest.raises(PipelineError, match=r"stage 1 of 2 was ended by SIGKILL; .* after epoch"):
        train_pipeline(plan, tmp_path, started=kill)
    assert 0 < finished_epochs(plan, tmp_path) <= 3
    train_pipeline(plan, tmp_path)
    assert_same(plan, tmp_path)


def test_command_line(tmp_path, capsys):
    arguments = ["pipeline", "--schedule", "1f1b", "--method", "adagp"]
    arguments += ["--stages", "2", "--micro-batches", "2"]
    arguments += ["--batch", "16", "--train-images", "48", "--test-images", "20", "--check"]
    assert main([*arguments, "--output", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert "stage 0: Conv2d, BatchNorm2d" in output and "accuracy on 20 test images: " in output
    assert "equal those of one process, bit for bit" in output
    trace = json.loads((tmp_path / "trace.json").read_text())
    first = [each["kind"] for each in trace["stages"][0] if each["epoch"] == 1]
    assert first == ["GP"] * 2 + ["forward"] * 2 + ["backward"] * 2 + ["GP"] * 2
    for more, message in (
        (["--rate", "0.1"], "holds a training with rate 0.05, not 0.1; delete it or choose"),
        (["--schedule", "gpipe"], "holds a training with schedule '1f1b', not 'gpipe'"),
    ):
        assert main([*arguments, *more, "--output", str(tmp_path)]) == 2
        assert message in capsys.readouterr().err
    (tmp_path / "epoch2-stage0.pt").write_bytes(b"no checkpoint")
    assert main([*arguments, "--output", str(tmp_path)]) == 2
    assert "epoch2-stage0.pt is damaged; delete it" in capsys.readouterr().err
    (tmp_path / "settings.json").unlink()
    assert main([*arguments, "--output", str(tmp_path)]) == 2
    assert "holds checkpoints, but" in capsys.readouterr().err


def test_devices(monkeypatch, capsys):
    """A stage needs a GPU of its own, and bits are compared on the processor."""
    if not torch.cuda.is_available():
        assert main(["pipeline", "--device", "cuda"]) == 2
        assert "device must be cpu: torch has no CUDA device here" in capsys.readouterr().err
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    assert main(["pipeline", "--device", "cuda", "--stages", "4"]) == 2
    assert "stages must be at most 3, the number of GPUs, with" in capsys.readouterr().err
    assert main(["pipeline", "--device", "cuda", "--stages", "3", "--schedule", "async"]) == 2
    assert "device must be cpu with schedule async" in capsys.readouterr().err
    assert main(["pipeline", "--device", "cuda", "--stages", "3", "--check"]) == 2
    assert "check needs device cpu" in capsys.readouterr().err
    plan = PipelinePlan(device="cuda", stages=3)
    assert [plan.place(number) for number in (0, 2)] == [torch.device("cuda:0"),
                                                         torch.device("cuda:2")]  # fmt: skip
    assert PipelinePlan().place(3) == torch.device("cpu")


@pytest.mark.parametrize(
    ("device", "wanted"), [("cuda", ["GPU 1", "nccl 1 of 2"]), ("cpu", ["gloo 1 of 2"])]
)
def test_what_processes_talk_over(device, wanted, monkeypatch, tmp_path):
    """Which backend is taken, before anything is trained; a training over nccl is not among the
    tests, since that takes two GPUs."""
    seen = []

    def begin(backend, *, init_method, rank, world_size):
        seen.append(f"{backend} {rank} of {world_size}")

    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.set_device", lambda number: seen.append(f"GPU {number}"))
    monkeypatch.setattr("torch.distributed.init_process_group", begin)
    monkeypatch.setattr("torch.distributed.destroy_process_group", lambda: None)
    monkeypatch.setattr("algorithms.pipeline.worker._train", lambda *_: None)
    run_stage(PipelinePlan(device=device, stages=2), 1, tmp_path, tmp_path / "store", 0)
    assert seen == wanted
    assert not list(tmp_path.iterdir())  # no fault was written


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--stages", "1"], "stages must be at least 2, not 1"),
        (["--stages", "9"], "stages must be at most 5, not 9"),
        (["--micro-batches", "5"], "micro_batches must divide batch, 64, not 5"),
        (["--schedule", "async", "--method", "adagp"], "method must be bp with schedule async"),
        (["--braking", "-1"], "braking must be at least 0, not -1.0"),
        (["--braking", "nan"], "braking must be at least 0, not nan"),
        (["--momentum", "1"], "momentum must be from 0 to below 1, not 1.0"),
        (["--seed", "-1"], "seed must be at least 0, not -1"),
        (["--train-images", "20"], "batch must be at most 20, not 64"),
    ],
)
def test_wrong_input(arguments, message, capsys):
    assert main(["pipeline", *arguments]) == 2
    assert message in capsys.readouterr().err
