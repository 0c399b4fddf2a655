"""The code of docs/tutorial.md, block after block.

Covers: runtime/accelerator.py.
"""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"

#: What the commands of the page call mine.py.
MINE = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self, shape, classes):
        channels, height, width = shape
        super().__init__(
            nn.Conv2d(channels, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(4 * (height // 2) * (width // 2), classes),
        )
"""


def test_every_block_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tokens = MarkdownIt().parse(TUTORIAL.read_text())
    blocks = [token.content for token in tokens if token.type == "fence" and token.info == "python"]
    assert len(blocks) == 7
    names = {}
    for block in blocks:
        exec(compile(block, str(TUTORIAL), "exec"), names)
    printed = capsys.readouterr().out.splitlines()
    assert float(printed[0]) > 0.5, "the network has not learned"
    assert "{'GP': 2, 'BP': 1}" in printed
    assert any("Softsign" in line for line in printed)
    assert any(line.startswith("batch 1: weights 7.weight[0, 0] is 0x") for line in printed)
    assert (tmp_path / "history.png").exists() and (tmp_path / "half.pt").exists()


@pytest.mark.long
def test_every_command_runs(tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    tokens = MarkdownIt().parse(TUTORIAL.read_text())
    text = "".join(t.content for t in tokens if t.type == "fence" and t.info == "console")
    lines = [line.removeprefix("$ ") for line in text.replace("\\\n", "").splitlines()]
    commands = [shlex.split(line) for line in lines if ".venv/bin/python" in line]
    assert [command[:4] for command in commands] == [
        [".venv/bin/python", "-m", "runtime", name] for name in ("train", "predict")
    ]
    for _, *arguments in commands:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert not done.returncode, done.stderr
    assert "360 samples, " in done.stdout
    assert (tmp_path / "net.pt").exists() and (tmp_path / "history.png").exists()
