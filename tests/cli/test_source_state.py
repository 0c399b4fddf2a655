"""The commit that a result names."""

import subprocess

import pytest

from cli import source_state as module
from cli.source_state import source_state


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository with a commit of two folders; a function that runs git in it."""
    monkeypatch.setattr(module, "PROJECT_ROOT", tmp_path)
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)

    def git(*arguments):
        own = ("-c", "user.name=test", "-c", "user.email=test@localhost")
        command = ["git", "-C", str(tmp_path), *own, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    git("init")
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "file").write_text(folder)
    git("add", ".")
    git("commit", "-m", "both")
    return git


def test_the_last_commit_of_some_folders(checkout, tmp_path):
    begin = checkout("log", "-1", "--format=%h", "--abbrev=7")
    assert source_state() == source_state("first") == begin and len(begin) == 7
    (tmp_path / "second" / "file").write_text("changed")
    assert (
        source_state("first") == begin and source_state() == source_state("second") == begin + "+"
    )
    checkout("commit", "-am", "second")
    assert source_state("first") == begin != source_state("second") == source_state()
    (tmp_path / "first" / "new").write_text("")
    assert source_state("first") == begin + "+"
    assert source_state("third") == ""


def test_no_checkout(tmp_path, checkout, monkeypatch):
    """A copy inside another repository is none of it; nor without git."""
    monkeypatch.setattr(module, "PROJECT_ROOT", tmp_path / "first")
    assert source_state() == ""
    monkeypatch.setattr(module, "PROJECT_ROOT", tmp_path)
    monkeypatch.setenv("PATH", "")
    assert source_state() == ""
