"""A measurement that is stopped takes along what it started."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from synth.common.child_processes import descendants, stoppable

#: A measurement in a thread: a program that starts another one, then the next program.
MEASUREMENT = """
    import concurrent.futures, signal, subprocess, sys
    from synth.common.child_processes import stoppable

    # What a shell starts in the background ignores SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def measure():
        for _ in range(5):
            subprocess.run(["sh", "-c", "sleep 60 & wait"])

    with stoppable(), concurrent.futures.ThreadPoolExecutor() as pool:
        future = pool.submit(measure)
        print("begun", flush=True)
        future.result()
"""


def wait_for(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def alive(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{process}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_programs_end(number):
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(MEASUREMENT)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline() == "begun\n"
        wait_for(lambda: len(descendants(process.pid)) == 2)
        below = descendants(process.pid)
        process.send_signal(number)
        assert process.wait(30) == 128 + number
        wait_for(lambda: not any(map(alive, below)))
        assert process.stderr.read() == "stopped; what was measured is kept\n"
    finally:
        for left in [*descendants(process.pid), process.pid]:
            if alive(left):
                os.kill(left, signal.SIGKILL)
        process.communicate()


def test_nothing_changes_outside():
    before = signal.getsignal(signal.SIGTERM)
    with stoppable():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before

    def elsewhere():
        with stoppable():
            seen.append(signal.getsignal(signal.SIGTERM))

    seen = []
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [before]
