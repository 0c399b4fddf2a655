"""The result cache: what is known is not computed again, what is broken is.

Covers: synth/common/errors.py.
"""

import json
import os

import pytest

from synth.common.cache import (
    ENVIRONMENT,
    cache_directory,
    cached,
    cached_and_dated,
    text_hash,
    tool_versions,
)
from synth.common.errors import ToolError


class Counter:
    def __init__(self, result):
        self.calls, self.result = 0, result

    def __call__(self):
        self.calls += 1
        return {**self.result, "call": self.calls}


KEY = {"config": {"rows": 4}, "seed": 1}


def test_second_call_reads(tmp_path):
    count = Counter({"area": 1.5})
    first = cached("area", KEY, count, directory=tmp_path)
    assert cached("area", dict(reversed(KEY.items())), count, directory=tmp_path) == first
    assert first == {"area": 1.5, "call": 1} and count.calls == 1
    (path,) = tmp_path.iterdir()
    entry = json.loads(path.read_text())
    assert entry["key"] == KEY and entry["step"] == "area" and entry["result"] == first


def test_date_is_that_of_the_computation(tmp_path):
    """An entry made long ago keeps its day, whenever it is read."""
    assert len(cached_and_dated("a", KEY, Counter({}), directory=tmp_path)["date"]) == 10
    (path,) = tmp_path.iterdir()
    entry = json.loads(path.read_text())
    path.write_text(json.dumps(entry | {"date": "2001-02-03T04:05:06+00:00"}))
    found = cached_and_dated("a", KEY, Counter({}), directory=tmp_path)
    assert found == {"call": 1, "date": "2001-02-03"}
    assert "date" not in cached("a", KEY, Counter({}), directory=tmp_path)
    again = cached_and_dated("a", KEY, Counter({}), directory=tmp_path, refresh=True)
    assert again["date"] > "2001-02-03"


def test_key_and_step_separate(tmp_path):
    count = Counter({})
    for step, key in (("a", KEY), ("b", KEY), ("a", {**KEY, "seed": 2}), ("a", {})):
        cached(step, key, count, directory=tmp_path)
    assert count.calls == 4 == len(list(tmp_path.iterdir()))


def test_refresh_replaces(tmp_path):
    count = Counter({})
    cached("a", KEY, count, directory=tmp_path)
    assert cached("a", KEY, count, directory=tmp_path, refresh=True) == {"call": 2}
    assert cached("a", KEY, count, directory=tmp_path) == {"call": 2}


@pytest.mark.parametrize(
    "broken",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"key": {"other": 1}, "result": {"call": 9}, "date": "2001-02-03"}',
        '{"key": {"config": {"rows": 4}, "seed": 1}, "result": {"call": 9}}',
    ],
)
def test_unreadable_entry_is_computed_again(tmp_path, broken):
    count = Counter({})
    cached("a", KEY, count, directory=tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_text(broken)
    assert cached("a", KEY, count, directory=tmp_path) == {"call": 2}
    assert cached("a", KEY, count, directory=tmp_path) == {"call": 2}


def test_failure_leaves_nothing(tmp_path):
    def fail():
        raise ToolError("no")

    with pytest.raises(ToolError, match="no"):
        cached("a", KEY, fail, directory=tmp_path)
    with pytest.raises(ValueError, match="round trip"):
        cached("a", KEY, lambda: {"t": (1, 2)}, directory=tmp_path)
    assert not list(tmp_path.iterdir())


def test_bad_step_and_directory(tmp_path):
    with pytest.raises(ValueError, match="Step must be .* not 'a/b'"):
        cached("a/b", KEY, dict, directory=tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ToolError, match="Result cache .* cannot be written"):
        cached("a", KEY, dict, directory=tmp_path / "file" / "below")


def test_environment_moves_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "elsewhere"))
    assert cache_directory() == tmp_path / "elsewhere"
    cached("a", KEY, dict)
    assert len(os.listdir(tmp_path / "elsewhere")) == 1
    monkeypatch.delenv(ENVIRONMENT)
    assert cache_directory().parts[-2:] == ("build", "synth-cache")


def test_versions_and_hash():
    versions = tool_versions(("pytest", "no-such-package-at-all"))
    assert versions["pytest"] == pytest.__version__ and "no-such-package-at-all" not in versions
    assert "amaranth" in tool_versions()
    assert text_hash("a") == text_hash(b"a") != text_hash("b") and len(text_hash("")) == 16
