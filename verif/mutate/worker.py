"""A process that runs tests on the mutants of one file: ``python -m verif.mutate.worker FILE``.

It has imported the large libraries and nothing of the hardware, and forks for every task. After a
task that is ``warm`` it has imported hardware and tests as well, and a mutant costs little more
than its tests. Tasks come as lines of JSON on standard
input, an answer to each as a line on standard output. A task:

tests : node ids, in the order in which they run; empty: all of ``files``
files : files of tests that hold them
mode : "simulate": what needs a compiled simulation is not run and reported as ``compiled``;
    "compile": the design holds all mutants; "rebuild": it holds the selected one
selected : number of the mutant
limits : node id -> CPU seconds, ``None``: no limit
stop : end at the first failure
log : file for the output
warm : run in this process, which keeps what it has imported for the next tasks, which must have
    the same mode; in mode "compile" it keeps the Verilog as well
"""

import contextlib
import functools
import gc
import json
import os
import resource
import signal
import sys
import traceback
from pathlib import Path

import pytest

from . import loader, runtime

__all__ = ["main"]

_SELECTOR_FILE = "adagp_mutant.v"
_originals = {}  # functions that are replaced, as they were
_NEEDS_COMPILER = "needs a compiled simulation"
_CACHE = functools._lru_cache_wrapper
_OWN_PACKAGES = ("hw", "rtl_gen", "compiler", "emulator", "verif", "tests")
#: What the process of the tests itself may still use while a simulation runs.
_OWN_SECONDS = 20


class _OutOfTime(BaseException):
    """A test has used more CPU time than it may."""


class _Recorder:
    """Selects and orders the tests; notes how each ends, and which mutants it elaborates."""

    def __init__(self, task):
        self.order = {name: index for index, name in enumerate(task["tests"])}
        self.limits = task["limits"]
        self.compiled = task["mode"] == "simulate"
        self.tests = {}
        self.at_import = {}
        self.failed = None
        self.test = ""  # that runs
        self.texts = 0  # of Verilog that it has asked for
        self.limit = None  # its CPU seconds

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        self.at_import = runtime.observe()
        if self.order:
            items[:] = sorted(
                (item for item in items if item.nodeid in self.order),
                key=lambda item: self.order[item.nodeid],
            )

    def pytest_collectreport(self, report):
        if report.failed:
            self._fail(report.nodeid, report.longreprtext)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item, nextitem):
        self.tests[item.nodeid] = {"seconds": 0.0, "compiled": False, "met": {}}
        runtime.observe()
        start = _cpu_seconds()
        self.test, self.texts = item.nodeid, 0
        self.limit = self.limits.get(item.nodeid)
        if self.limit:
            signal.setitimer(signal.ITIMER_PROF, self.limit)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            self.tests[item.nodeid]["seconds"] = _cpu_seconds() - start
            self.tests[item.nodeid]["met"] = runtime.observe()

    def pytest_runtest_logreport(self, report):
        if self.compiled and report.skipped and _NEEDS_COMPILER in report.longreprtext:
            self.tests[report.nodeid]["compiled"] = True
        if report.failed:
            self._fail(report.nodeid, report.longreprtext)

    def _fail(self, name, text):
        if self.failed is None:
            lines = [line for line in text.splitlines() if line.startswith("E ")] or [text]
            self.failed = {"test": name, "message": lines[0].removeprefix("E").strip()[:300]}


def _cpu_seconds():
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def _prepare_simulations(task, recorder):
    """Compiled simulations hold all mutants, or are refused."""
    from verif.sim import runner

    build = _originals.setdefault("build", runner.build)
    run = _originals.setdefault("run", runner.run)

    def refuse(*_args, **_keywords):
        pytest.skip(_NEEDS_COMPILER)

    def build_all(sources, *, toplevel, **keywords):
        if isinstance(sources, str):
            sources = {f"{toplevel}.v": sources}
        if any("adagp_mutant" in text for text in sources.values()):
            sources = {**sources, _SELECTOR_FILE: runtime.SELECTOR}
        return build(sources, toplevel=toplevel, **keywords)

    def run_one(design, test_module, *, plusargs=(), extra_env=None, **keywords):
        # Of the tests inside a simulation as well, the first failure is enough.
        extra = {"COCOTB_MAX_FAILURES": "1", **(extra_env or {})}
        plusargs = [*plusargs, f"+mutant={task['selected']}"]
        with _limited(recorder.limit):
            return run(design, test_module, plusargs=plusargs, extra_env=extra, **keywords)

    if task["mode"] == "simulate":
        runner.build = refuse
    else:
        if task["mode"] == "compile":
            runner.build = build_all
            _remember_texts(recorder)
        runner.run = run_one


#: Verilog that holds all mutants is the same for each of them: (test, how many texts it has asked
#: for, what of) -> text. Filled by a task that is ``warm``.
_texts = {}


def _remember_texts(recorder):
    from hw.primitives import shared_module
    from verif.sim import runner

    def remembering(emit):
        def remembered(component, *, name, **keywords):
            about = type(component).__qualname__, repr(component.signature), name
            key = recorder.test, recorder.texts, about
            recorder.texts += 1
            if key not in _texts:
                _texts[key] = emit(component, name=name, **keywords)
            return _texts[key]

        return remembered

    runner.verilog = remembering(_originals.setdefault("verilog", runner.verilog))
    shared_module.emit_verilog = remembering(
        _originals.setdefault("emit", shared_module.emit_verilog)
    )


@contextlib.contextmanager
def _limited(seconds):
    """Processes started here may use that many CPU seconds; so a simulation ends that hangs."""
    before = resource.getrlimit(resource.RLIMIT_CPU)
    if seconds:
        own = resource.getrusage(resource.RUSAGE_SELF)
        most = max(seconds, own.ru_utime + own.ru_stime + _OWN_SECONDS)
        resource.setrlimit(resource.RLIMIT_CPU, (int(most) + 1, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, before)


def _out_of_time(_number, _frame):
    raise _OutOfTime("the test runs for ever")


def _run(task):
    """Run a task; its output goes to standard output and errors."""
    recorder = _Recorder(task)
    status = None
    try:
        signal.signal(signal.SIGPROF, _out_of_time)
        runtime.configure(selected=task["selected"], all=task["mode"] == "compile")
        _prepare_simulations(task, recorder)
        arguments = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--durations=0"]
        arguments += ["-x"] if task["stop"] else []
        status = int(pytest.main([*arguments, *task["files"]], plugins=[recorder]))
    except BaseException:
        text = traceback.format_exc()
        sys.stderr.write(text)
        recorder._fail("", text.splitlines()[-1])
    return {
        "status": status,
        "failed": recorder.failed,
        "tests": recorder.tests,
        "at_import": recorder.at_import,
        "modules": sorted(
            str(module.__file__)
            for module in list(sys.modules.values())
            if getattr(module, "__file__", None)
        ),
    }


@contextlib.contextmanager
def _output_to(log):
    """Standard output and errors go to the file ``log``, standard input is empty."""
    sys.stdout.flush()
    kept = [os.dup(number) for number in range(3)]
    file, nothing = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), os.open(os.devnull, 0)
    for number, target in enumerate((nothing, file, file)):
        os.dup2(target, number)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, original in enumerate(kept):
            os.dup2(original, number)
        for number in (*kept, file, nothing):
            os.close(number)


def _forget():
    """Empty all caches: what was elaborated has no mutant in it."""
    for cache in [thing for thing in gc.get_objects() if isinstance(thing, _CACHE)]:
        if (cache.__module__ or "").partition(".")[0] in _OWN_PACKAGES:
            cache.cache_clear()


def run_task(task):
    """Fork, wait, and return what the child says."""
    if task["warm"]:
        with _output_to(task["log"]):
            result = _run(task)
        if task["mode"] != "compile":
            _forget()
        return result
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            with _output_to(task["log"]), os.fdopen(write, "w") as file:
                json.dump(_run(task), file)
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        text = file.read()
    os.waitpid(child, 0)
    if not text:
        return {"status": None, "failed": {"test": "", "message": "the process was killed"}}
    return json.loads(text)


def main(file: str) -> None:
    """Serve tasks until standard input ends."""
    root = Path.cwd()
    loader.install(root, file)
    for line in iter(sys.stdin.readline, ""):
        result = run_task(json.loads(line))
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    import amaranth.back.verilog
    import amaranth.lib.fifo
    import amaranth.lib.memory
    import amaranth.sim  # noqa: F401
    import numpy  # noqa: F401

    main(sys.argv[1])
