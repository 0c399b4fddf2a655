"""The command line: train, resume, predict, and one message for every mistake.

Covers: runtime/sources.py, runtime/options.py.
"""

import json

import numpy as np
import pytest
import torch

from boards.__main__ import main as boards
from runtime.command import main

MODEL = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self, shape, classes):
        size = shape[1] * shape[2]
        super().__init__(nn.Flatten(), nn.Linear(size, 8), nn.ReLU(), nn.Linear(8, classes))

def number():
    return 3

def two_classes():
    return Net((1, 4, 4), 2)
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
        (["--model", "net.py:two_classes"], "two_classes tells 2 classes apart, data.npz has 3"),
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
        (["--set", "rows=0"], "rows"),
    ],
)
def test_messages(files, capsys, arguments, message):
    assert main(["train", *NET, *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


@pytest.mark.parametrize("text", ["0", "-1", "soon", "nan", "inf"])
@pytest.mark.parametrize("command", ["runtime", "boards"])
def test_timeout(capsys, command, text):
    """One rule for the two programs that operate a board."""
    given = {
        "runtime": ["train", *NET, "--device", "serial:/dev/null"],
        "boards": ["self-test", "ulx3s", "--port", "/dev/null"],
    }[command]
    with pytest.raises(SystemExit) as ended:
        {"runtime": main, "boards": boards}[command]([*given, f"--timeout={text}"])
    assert ended.value.code == 2
    assert f"must be a number of seconds above 0, not {text!r}" in capsys.readouterr().err


def test_classes_are_those_of_all_samples(files, capsys):
    """A part of the samples may lack some; the network is one for all of them."""
    labels = np.array([0, 1, 0, 1, 2, 2])
    images = np.zeros((6, 1, 4, 4), np.float32)
    np.savez("part.npz", images=images, labels=labels, test_images=images, test_labels=labels)
    net = ["--model", "net.py:Net", "--data", "part.npz", "--batch", "2"]
    assert main(["train", *net, "--method", "bp", "--epochs", "1", "--train", "4",
                 "--weights", "net.pt"]) == 0  # fmt: skip
    assert main(["predict", *net, "--weights", "net.pt"]) == 0
    assert "6 samples" in capsys.readouterr().out
    # One class less, one more, another network, and no weights at all.
    np.savez("two.npz", images=images[:4], labels=labels[:4], test_images=images[:4],
             test_labels=labels[:4])  # fmt: skip
    torch.save({"weight": torch.zeros(2)}, "other.pt")
    torch.save({**torch.load("net.pt"), "1.weight": torch.zeros(8, 9)}, "shape.pt")
    for arguments, message in (
        (["--data", "two.npz", "--weights", "net.pt"],
         "net.pt was trained for 3 classes, two.npz has 2"),
        (["--weights", "other.pt"], "other.pt is of another model: 1.bias is in the model only"),
        (["--weights", "shape.pt"],
         "shape.pt is of another model: 1.weight has shape (8, 9), not (8, 16)"),
        (["--weights", "part.npz"], "part.npz is no state_dict that train has written"),
        (["--weights", "net.py"], "net.py is no state_dict that train has written"),
        (["--weights", "none.pt"], "none.pt: No such file or directory"),
    ):  # fmt: skip
        assert main(["predict", *net, *arguments]) == 2
        assert capsys.readouterr().err == f"error: {message}\n"
