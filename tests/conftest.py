"""One seed for the whole session, printed in every failure; programs that are sent a signal."""

import contextlib
import gc
import os

# As many processes as cores run tests: threads of their own would only get in each other's way.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from cli.interrupt import descendants

DEFAULT_SEED = 1
#: How long a program may take until it is sent a signal, and then to end.
_PATIENCE_SECONDS = 60


def pytest_addoption(parser):
    parser.addoption(
        "--seed",
        type=int,
        default=int(os.environ.get("ADAGP_SEED") or DEFAULT_SEED),
        help=f"seed of all random stimulus (default: $ADAGP_SEED, else {DEFAULT_SEED})",
    )
    parser.addoption(
        "--long",
        action="store_true",
        help="run what takes minutes, too: tests marked so, and the waveform of docs/example.md",
    )


def pytest_collection_modifyitems(config, items):
    """Without --long, tests marked ``long`` are not for this run."""
    if not config.getoption("long"):
        long = [item for item in items if item.get_closest_marker("long")]
        items[:] = [item for item in items if item not in long]
        config.hook.pytest_deselected(items=long)


def pytest_collection_finish():
    """What has been imported stays. Python looks for cycles of objects more rarely: designs and
    programs are many objects that all stay for a while. It takes a seventh of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def pytest_report_header(config):
    return f"seed: {config.getoption('seed')} (repeat with --seed {config.getoption('seed')})"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed:
        seed = item.config.getoption("seed")
        report.sections.append(("seed", f"--seed {seed}"))
    return report


@pytest.fixture
def seed(request) -> int:
    """The session's seed."""
    return request.config.getoption("seed")


@pytest.fixture
def rng(seed) -> np.random.Generator:
    """A random generator that starts at the session's seed in every test."""
    return np.random.default_rng(seed)


@dataclass(frozen=True, kw_only=True)
class Interrupted:
    """What a program that was sent a signal has left: exit status, standard output and errors."""

    status: int
    output: str
    errors: str


@pytest.fixture
def interrupted():
    """A function that starts a command, sends it a signal, and sees all of its processes end.

    ``when`` says of the process whether it is time; by default that is after its first line of
    output. ``build`` is a build directory of its own.
    """

    def call(command, *, when=None, number=signal.SIGINT, build=None) -> Interrupted:
        own = {"PYTHONPATH": str(Path(__file__).resolve().parent.parent)}
        own |= {"ADAGP_BUILD_DIR": str(build)} if build else {}
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=os.environ | own,
            # Whoever started the tests in the background lets them ignore Ctrl-C.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip
        below, first = [], ""
        try:
            if when is None:
                first = process.stdout.readline()
            else:
                _wait_for(lambda: process.poll() is not None or when(process.pid))
            assert process.poll() is None, f"it has ended: {process.communicate()}"
            below = descendants(process.pid)
            process.send_signal(number)
            output, errors = process.communicate(timeout=_PATIENCE_SECONDS)
            _wait_for(lambda: not any(map(_is_alive, below)))
        finally:
            for left in {*below, *descendants(process.pid), process.pid}:
                if _is_alive(left):
                    os.kill(left, signal.SIGKILL)
            process.communicate(timeout=_PATIENCE_SECONDS)
        return Interrupted(status=process.returncode, output=first + output, errors=errors)

    return call


@pytest.fixture
def loaded():
    """``when`` of :func:`interrupted`: as soon as the process has loaded a library."""

    def make(library):
        def when(process):
            with contextlib.suppress(OSError):
                return library in Path(f"/proc/{process}/maps").read_text()
            return False

        return when

    return make


def _wait_for(condition):
    end = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def _is_alive(process):
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"
