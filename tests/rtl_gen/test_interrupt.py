"""What is stopped takes along what it started, and says so in one line."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from rtl_gen import output
from rtl_gen.interrupt import descendants
from rtl_gen.manifest import GENERATOR

#: A measurement in a thread: a program that starts another one, then the next program.
MEASUREMENT = """
    import concurrent.futures, subprocess
    from rtl_gen.interrupt import end_on_signals

    end_on_signals("measure", "; some is kept")

    def measure():
        for _ in range(5):
            subprocess.run(["sh", "-c", "sleep 60 & wait"])

    with concurrent.futures.ThreadPoolExecutor() as pool:
        future = pool.submit(measure)
        print("begun", flush=True)
        future.result()
"""


@pytest.mark.parametrize(
    ("number", "word"), [(signal.SIGTERM, "stopped"), (signal.SIGINT, "interrupted")]
)
def test_programs_end(number, word, interrupted):
    done = interrupted(
        [sys.executable, "-c", textwrap.dedent(MEASUREMENT)],
        when=lambda process: len(descendants(process)) == 2,
        number=number,
    )
    assert done.status == 128 + number
    assert done.errors == f"measure: {word}; some is kept\n"


def test_a_signal_that_is_ignored_stays_ignored():
    """As in what a shell starts in the background."""
    script = (
        "import os, signal; from rtl_gen.interrupt import end_on_signals\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN); end_on_signals('x')\n"
        "os.kill(os.getpid(), signal.SIGINT); print('goes on')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "goes on\n", "")


def test_a_second_signal_ends_what_does_not_end():
    """Someone presses Ctrl-C again while files are being removed."""
    script = (
        "import os, signal, time; from rtl_gen.interrupt import end_on_signals\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler); end_on_signals('x')\n"
        "try:\n    os.kill(os.getpid(), signal.SIGINT); time.sleep(60)\n"
        "finally:\n    os.kill(os.getpid(), signal.SIGINT); time.sleep(60)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode == 130


def test_hardware_that_is_only_half_made_is_not_talked_about():
    """Amaranth warns of every component that was created but never used."""
    script = (
        "import os, signal, time; from rtl_gen.interrupt import end_on_signals\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler); end_on_signals('x')\n"
        "from amaranth.hdl import Elaboratable, Fragment\n"
        "class Top(Elaboratable):\n"
        "    def elaborate(self, platform):\n"
        "        part = Top()\n"
        "        os.kill(os.getpid(), signal.SIGINT); time.sleep(60)\n"
        "Fragment.get(Top(), None)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=30
    )
    assert (done.returncode, done.stderr) == (130, "x: interrupted\n")


def test_descendants_of_this_process():
    with subprocess.Popen(["sleep", "60"]) as process:
        assert process.pid in descendants(os.getpid())
        process.kill()


def test_generating_is_interrupted(interrupted, tmp_path):
    """Verilog is being made: nothing has been written, nothing stays."""
    out = tmp_path / "out"
    done = interrupted(
        [
            sys.executable,
            "-m",
            "rtl_gen",
            "--preset",
            "tiny",
            "--variant",
            "baseline",
            "--output-dir",
            str(out),
        ],
        when=descendants,
    )
    assert (done.status, done.errors) == (130, "rtl_gen: interrupted\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("before", [True, False])
def test_a_directory_that_was_to_be_replaced_is_put_back(before, monkeypatch, tmp_path):
    """Ctrl-C between the two moves, before or after the second one."""
    place, manifest = tmp_path / "out", f'{{"generator": "{GENERATOR}", "files": {{}}}}'
    place.mkdir()
    (place / "manifest.json").write_text(manifest)
    rename = os.rename

    def interrupted_rename(source, target):
        last = source.name == "new"
        if not (last and before):
            rename(source, target)
        if last:
            monkeypatch.undo()
            raise SystemExit(130)

    monkeypatch.setattr(os, "rename", interrupted_rename)
    with pytest.raises(SystemExit):
        output.write(place, {"new.v": "module"})
    left = {path.name: path.read_text() for path in place.iterdir()}
    assert left == ({"manifest.json": manifest} if before else {"new.v": "module"})
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
