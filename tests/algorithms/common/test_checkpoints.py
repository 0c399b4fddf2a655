"""A checkpoint that cannot be read is named."""

import pytest
import torch

from algorithms.common.checkpoints import read_checkpoint


def test_what_was_written_and_what_is_damaged(tmp_path):
    path = tmp_path / "a.pt"
    torch.save({"epoch": 2, "weights": torch.arange(1000.0)}, path)
    state = read_checkpoint(path)
    assert state["epoch"] == 2 and torch.equal(state["weights"], torch.arange(1000.0))
    whole = path.read_bytes()
    for content in (b"", b"no checkpoint", whole[:2000]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"checkpoint .*a\.pt is damaged; delete it to start"):
            read_checkpoint(path)
