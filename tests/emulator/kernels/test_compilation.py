"""Compiled kernels stay on disk, apart for each state of the sources."""

import subprocess
import sys
from pathlib import Path

from cli.build_directory import PROJECT_ROOT, build_root
from emulator.kernels import compilation


def test_kernels_are_kept_below_the_build_directory():
    """What a process has compiled, another one loads."""
    text = (
        "from emulator.kernels.vector import watch; "
        "from tests.emulator.kernels.test_numbers import test_watching; test_watching(); "
        "print(watch.stats.cache_path, *watch.stats.cache_misses.values())"
    )
    command = [sys.executable, "-c", text]
    outputs = [
        subprocess.run(command, check=True, cwd=PROJECT_ROOT, capture_output=True, text=True).stdout
        for _ in range(2)
    ]
    path, *misses = outputs[1].split()
    assert Path(path).is_relative_to(build_root() / "numba")
    assert misses == []


def test_a_change_of_any_source_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(compilation, "PROJECT_ROOT", tmp_path)
    found = {compilation._digest()}
    for folder in compilation._SOURCES:
        assert (PROJECT_ROOT / folder / "__init__.py").exists(), folder
        (tmp_path / folder).mkdir(parents=True)
        for text in ("a = 1", "a = 2"):
            (tmp_path / folder / "one.py").write_text(text)
            found.add(compilation._digest())
    assert len(found) == 1 + 2 * len(compilation._SOURCES)


def test_who_executes_no_command_does_not_wait_for_numba():
    text = (
        "import sys, emulator.device, emulator.executor, emulator.interpreter; "
        "from emulator.machine import Machine; from hw.config import make_config; "
        "Machine(make_config(variant='baseline', preset='tiny'), bytearray(8)); "
        "assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", text], check=True, cwd=PROJECT_ROOT)
