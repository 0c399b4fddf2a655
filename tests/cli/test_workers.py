"""Tasks in this process, in several, and on a cluster in which a worker dies."""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli import workers as workers_module
from cli.build_directory import PROJECT_ROOT
from cli.workers import ClusterError, Workers, add_workers, source_digest, workers_of


def square(number):
    if number < 0:
        raise ValueError(f"number must be at least 0, not {number}")
    return number * number


def die_once(number, directory):
    """Square a number; the first worker that is given 7 dies of it, with whatever it has done."""
    mark = Path(directory) / "died"
    if number == 7 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def die(number):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("jobs", [1, 2])
def test_every_task_once(jobs):
    tasks = [(number,) for number in range(20)]
    results = list(Workers(jobs=jobs).results(square, tasks))
    assert sorted(results) == [(n, n * n) for n in range(20)]
    with pytest.raises(ValueError, match="number must be at least 0, not -1"):
        list(Workers(jobs=jobs).results(square, [(1,), (-1,)]))
    assert list(Workers(jobs=jobs).results(square, [])) == []


def test_options(capsys):
    parser = argparse.ArgumentParser()
    add_workers(parser, jobs=1, what="runs")
    workers = workers_of(parser.parse_args(["--scheduler", "tcp://127.0.0.1:1"]))
    assert (workers.jobs, workers.scheduler) == (1, "tcp://127.0.0.1:1")
    with pytest.raises(SystemExit) as stop:
        parser.parse_args(["--jobs", "0"])
    assert stop.value.code == 2
    assert "--jobs: must be an integer of at least 1, not '0'" in capsys.readouterr().err
    with pytest.raises(ValueError, match="jobs must be at least 1, not 0"):
        Workers(jobs=0)


def test_no_scheduler(monkeypatch):
    monkeypatch.setattr(workers_module, "_ANSWER_SECONDS", 0.2)
    with pytest.raises(ClusterError, match="no dask scheduler answers at tcp://127.0.0.1:9"):
        list(Workers(scheduler="tcp://127.0.0.1:9").results(square, [(1,)]))


@pytest.fixture
def cluster(tmp_path):
    """Address of a scheduler with two workers on this machine, in processes of their own."""
    file = tmp_path / "scheduler.json"
    environment = os.environ | {
        "PYTHONPATH": f"{PROJECT_ROOT}{os.pathsep}{Path(__file__).parent}",
        "PYTHONWARNINGS": "ignore",
        "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1",
    }
    processes = []

    def start(program, *options):
        command = [sys.executable, "-m", f"distributed.cli.{program}", "--host", "127.0.0.1"]
        command += ["--no-dashboard", "--scheduler-file", str(file), *options]
        with (tmp_path / "log").open("a") as log:
            processes.append(
                subprocess.Popen(
                    command, cwd=tmp_path, env=environment, stderr=log, start_new_session=True
                )
            )

    try:
        start("dask_scheduler", "--port", "0")
        deadline = time.monotonic() + 60
        while not file.is_file():
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.1)
        for _ in range(2):
            start("dask_worker", "--nthreads", "1")
        yield json.loads(file.read_text())["address"]
    finally:
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)  # with the processes that a worker has started
            process.wait()


def test_cluster(cluster, tmp_path, monkeypatch):
    """A worker is killed in the middle: every result comes once; errors are those of the tasks."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    import test_workers as module  # the name by which workers import it

    workers = Workers(scheduler=cluster)
    tasks = [(number, str(tmp_path)) for number in range(40)]
    results = list(workers.results(module.die_once, tasks))
    assert (tmp_path / "died").exists()
    assert sorted(results) == [(n, n * n) for n in range(40)]

    with pytest.raises(ValueError, match="number must be at least 0, not -1"):
        list(workers.results(module.square, [(1,), (-1,)]))

    with pytest.raises(ClusterError, match="task 0 ended 2 workers of tcp://127"):
        list(workers.results(module.die, [(1,)]))

    monkeypatch.setattr(workers_module, "source_digest", lambda: source_digest()[::-1])
    with pytest.raises(ClusterError, match="another state of the project's sources"):
        list(workers.results(module.square, [(1,)]))
