"""The command line: train, resume, predict, and one message for every mistake.

Covers: runtime/sources.py.
"""

import json

import numpy as np
import pytest

from runtime.command import main

MODEL = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self, shape, classes):
        size = shape[1] * shape[2]
        super().__init__(nn.Flatten(), nn.Linear(size, 8), nn.ReLU(), nn.Linear(8, classes))

def number():
    return 3
"""


@pytest.fixture
def files(tmp_path, monkeypatch, rng):
    """A model and data, in the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(MODEL)
    images = rng.normal(size=(12, 1, 4, 4)).astype(np.float32)
    labels = rng.integers(3, size=12)
    labels[0] = 2
    np.savez("data.npz", images=images, labels=labels, test_images=images, test_labels=labels)
    np.savez("no_labels.npz", images=images)
    return tmp_path


NET = ("--model", "net.py:Net", "--data", "data.npz", "--batch", "6")


def test_train_resume_and_predict(files, capsys):
    train = ["train", *NET, "--warm-up", "1", "--checkpoint", "state.pt", "--check"]
    assert main([*train, "--epochs", "1"]) == 0
    assert main([*train, "--epochs", "2", "--resume", "--weights", "net.pt",
                 "--history", "history.json", "--plot", "history.png"]) == 0  # fmt: skip
    printed = capsys.readouterr().out
    assert "every number equals golden's after every batch" in printed and "2 WARM_UP" in printed
    epochs = json.loads((files / "history.json").read_text())["epochs"]
    assert [epoch["phases"] for epoch in epochs] == [{"WARM_UP": 2}, {"GP": 2}]
    assert (files / "history.png").exists()
    assert main(["predict", *NET, "--weights", "net.pt", "--output", "classes.npy"]) == 0
    share = float(np.mean(np.load("classes.npy") == np.load("data.npz")["labels"]))
    assert capsys.readouterr().out == f"12 samples, {share:.2%} classified correctly\n"
    assert epochs[-1]["validation"] == share


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "net"], "model must be FILE.py:NAME, MODULE:NAME or one of vgg, resnet"),
        (["--model", "no.py:Net"], "there is no file no.py"),
        (["--model", "nowhere:Net"], "there is no module nowhere"),
        (["--model", "net.py:Nut"], "net.py has no class or function Nut"),
        (["--model", "net.py:number"], "net.py:number makes a int, not a torch.nn.Module"),
        (["--data", "dogits"], "data must be digits, mnist5k, fashion-mnist, a directory, or"),
        (["--data", "none.npz"], "none.npz: No such file or directory"),
        (["--data", "no_labels.npz"], "no_labels.npz has no array labels; it has images"),
        (["--batch", "0"], "--batch must be at least 1, not 0"),
        (["--epochs", "0"], "--epochs must be at least 1, not 0"),
        (["--resume"], "--resume needs --checkpoint FILE"),
        (["--device", "board"], "device must be one of emulator, rtl or serial:PORT, not 'board'"),
        (["--device", "serial:/dev/null@fast"], "the rate must be a number, not 'fast'"),
        (["--device", "serial:none"], "none cannot be opened: No such file or directory"),
        (["--timeout", "5"], "--timeout is for a serial port only"),
        (["--device", "serial:/dev/null", "--timeout", "0"], "--timeout must be above 0, not 0"),
        (["--set", "rows=0"], "rows"),
    ],
)
def test_messages(files, capsys, arguments, message):
    assert main(["train", *NET, *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
