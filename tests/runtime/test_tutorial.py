"""The code of docs/tutorial.md, block after block.

Covers: runtime/accelerator.py.
"""

from pathlib import Path

from markdown_it import MarkdownIt

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"


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
