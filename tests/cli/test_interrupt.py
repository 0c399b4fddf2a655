"""What is stopped takes along what it started, and says so in one line."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from cli.interrupt import descendants

#: A measurement in a thread: a program that starts another one, then the next program.
MEASUREMENT = """
    import concurrent.futures, subprocess
    from cli.interrupt import end_on_signals

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


def test_whoever_catches_the_exit_misses_a_program(interrupted):
    """Extension modules catch what they do not expect: the next program ends all the same."""
    script = (
        "import subprocess, time; from cli.interrupt import end_on_signals; end_on_signals('x')\n"
        "try: print('begun', flush=True), time.sleep(60)\n"
        "except BaseException: pass\n"
        "subprocess.run(['sleep', '60'], check=True)\n"
    )
    done = interrupted([sys.executable, "-c", script])
    assert (done.status, done.errors) == (130, "x: interrupted\n")


def test_a_signal_that_is_ignored_stays_ignored():
    """As in what a shell starts in the background."""
    script = (
        "import os, signal; from cli.interrupt import end_on_signals\n"
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
        "import os, signal, time; from cli.interrupt import end_on_signals\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler); end_on_signals('x')\n"
        "try:\n    os.kill(os.getpid(), signal.SIGINT); time.sleep(60)\n"
        "finally:\n    os.kill(os.getpid(), signal.SIGINT); time.sleep(60)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode == 130


def test_what_has_been_stopped_is_killed_before_the_end():
    """The thread that ends programs is between the two signals when the process ends."""
    script = """
        import signal, subprocess, threading, time
        from cli import interrupt

        plain, stopped = interrupt._signal, threading.Event()

        def slowly(processes, number):
            plain(processes, number)
            if processes and number == signal.SIGSTOP:
                stopped.set()
                time.sleep(0.5)

        interrupt._signal = slowly
        try:
            interrupt._stop(signal.SIGTERM, "x: stopped")
        except SystemExit as end:
            program = subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
            print(program.pid, flush=True)
            stopped.wait()
            raise
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip
    assert done.returncode == 128 + signal.SIGTERM, done.stderr
    state = Path(f"/proc/{int(done.stdout)}/stat")
    try:
        assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(done.stdout), signal.SIGKILL)


def test_hardware_that_is_only_half_made_is_not_talked_about():
    """Amaranth warns of every component that was created but never used."""
    script = (
        "import os, signal, time; from cli.interrupt import end_on_signals\n"
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
