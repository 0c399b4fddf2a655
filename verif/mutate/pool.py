"""The side that gives workers their tasks."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

__all__ = ["Worker", "WorkerEnded"]


class WorkerEnded(Exception):
    """A worker has ended without an answer."""


class Worker:
    """A process of :mod:`verif.mutate.worker` for the mutants of one file.

    Members
    -------
    warm : names the tests that it has imported and their mode, "" if it is fresh
    """

    def __init__(self, root: Path, file: str, log: Path):
        self.log = log
        self.warm = ""
        self._errors = open(log.with_suffix(".err"), "w")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "verif.mutate.worker", file],
            cwd=root,
            env=os.environ | {"PYTHONPATH": str(root), "PYTHONWARNINGS": "default"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._lock = threading.Lock()

    def ask(self, task: dict) -> dict:
        """Have a task done and return its result.

        Raises
        ------
        WorkerEnded
            It has ended.
        """
        with self._lock:
            try:
                self._process.stdin.write(json.dumps({**task, "log": str(self.log)}) + "\n")
                self._process.stdin.flush()
                line = self._process.stdout.readline()
            except BrokenPipeError:
                line = ""
        if not line:
            raise WorkerEnded(f"the worker has ended; see {self._errors.name}")
        return json.loads(line)

    def close(self):
        """End the process."""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._errors.close()
