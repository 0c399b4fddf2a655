"""Runs the mutants of one file against the tests that cover it."""

import hashlib
import json
import math
import queue
import random
import threading
from dataclasses import dataclass
from pathlib import Path

from cli.atomic_files import write_whole

from .covering import SYSTEM_TESTS, covering_tests
from .operators import Mutant
from .pool import Worker
from .profile import Profile
from .rewrite import rewrite
from .runtime import GENERATOR, NOTHING

__all__ = ["Campaign", "CampaignFailed", "Outcome", "sample"]

KILLED = "killed"
SURVIVED = "survived"
UNTESTED = "not built"

#: A test on a mutant may take that many times as long as without, and so much longer.
_TIMES_AS_LONG = 5
_LONGER_SECONDS = 10


#: Of a mutant that is known to be equivalent, and lives in Amaranth's simulator.
_QUICK_ONLY = "not tried on a compiled simulation"

_NOTHING_KNOWN = {
    "base": "", "files": {}, "tests": {}, "at_import": {}, "modules": [], "results": {},
}  # fmt: skip


class CampaignFailed(Exception):
    """The tests fail without any mutant, or cannot be run."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a mutant.

    Members
    -------
    mutant : the mutant
    verdict : KILLED, SURVIVED, or UNTESTED if it is none of the hardware but of the generator, and
        all tests that reach it need a compiled simulation
    test : the test that killed it
    message : how
    """

    mutant: Mutant
    verdict: str
    test: str = ""
    message: str = ""

    def as_dict(self):
        """For the JSON summary."""
        return self.mutant.as_dict() | {
            "verdict": self.verdict, "test": self.test, "message": self.message,
        }  # fmt: skip


class Campaign:
    """The mutants of a file, its tests, and what is known of them from earlier runs.

    Parameters
    ----------
    root : Path
        of the project
    file : str
    directory : Path
        for results and logs
    jobs : int
        mutants at a time
    system : bool
        whether tests of the whole accelerator try what the tests of the block leave alive
    spared : callable
        whether a mutant is known to be equivalent; those are not tried on the whole accelerator,
        and on a compiled simulation only if no other test reaches them
    """

    def __init__(self, root: Path, file: str, directory: Path, *, jobs, system, spared):
        self.root = root
        self.file = file
        self.jobs = jobs
        self.system = system
        self.spared = spared
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        source = (root / file).read_text()
        self.mutants = rewrite(source, file)[1]
        self.tests = covering_tests(root, file)
        self._stem = file.removesuffix(".py").replace("/", ".")
        self._store = directory / f"{self._stem}.json"
        self._known = self._read()
        self._kills = {}
        self._hints = {}  # name of a mutant -> the test that killed it before something changed
        self._lock = threading.Lock()
        self._compiling = threading.Lock()
        self._workers = []
        self._idle = []
        self._idle_lock = threading.Lock()

    # Before ----------------------------------------------------------------------------------

    def prepare(self) -> list[Mutant]:
        """Run the tests without a mutant, those in Amaranth's simulator now and the compiled ones
        when they are needed; returns the mutants that can be.

        Raises
        ------
        CampaignFailed
            A test fails.
        """
        self.block = self._profile("block", self.tests)
        self.whole = None
        return [mutant for mutant in self.mutants if self.block.kind(mutant.number) != NOTHING]

    def _profile(self, name, files):
        """Of the tests in ``files``; where nothing has changed since an earlier run, from that."""
        known = self._known.get(name) or dict(_NOTHING_KNOWN)
        digests = {file: self._digest(file) for file in files}
        same = known["base"] == self._base(known["modules"], files)
        kept = [file for file in files if same and known["files"].get(file) == digests[file]]
        profile = Profile(
            {test: entry for test, entry in known["tests"].items() if _file(test) in kept},
            known["at_import"], name,
        )  # fmt: skip
        fresh = [file for file in files if file not in kept]
        if fresh:
            modules = self._measure(profile, fresh, whole=not kept)
            modules = sorted({*modules, *(known["modules"] if kept else ())} - set(files))
            results = {}
            for mutant, result in known["results"].items():
                if result["test"]:
                    self._hints[mutant] = result["test"]
                # A test that has not changed would kill it again.
                if result["verdict"] == KILLED and _file(result["test"]) in kept:
                    results[mutant] = result
            self._known[name] = {
                "base": self._base(modules, files), "files": digests, "tests": profile.tests,
                "at_import": profile.at_import, "modules": modules, "results": results,
            }  # fmt: skip
            self._write()
        return profile

    def _measure(self, profile, files, *, whole):
        """Run the tests in ``files`` without a mutant and add them to the profile; returns the
        files of the project that they import. ``whole``: there are no others."""
        label = profile.name if whole else "some of " + profile.name
        plain = self._warm(label, "simulate", [], files)
        tests = plain["tests"]
        for test in tests.values():
            test["met"] |= plain["at_import"]
        compiled = [test for test in tests.values() if test["compiled"]]
        # What a fixture of several tests elaborates is met by the first of them only.
        met = {number: kind for test in compiled for number, kind in test["met"].items()}
        for test in compiled:
            test.update(met=met, seconds=None)  # see _compile
        profile.tests.update(tests)
        profile.at_import = plain["at_import"]
        return self._own_files(plain["modules"])

    def _compile(self, profile):
        """Build and run the tests that need a compiled simulation without a mutant, which takes
        long: when a mutant is the first to need one."""
        with self._compiling:
            every = [name for name, test in profile.tests.items() if test["compiled"]]
            names = [name for name in every if profile.tests[name]["seconds"] is None]
            if not names:
                return
            label = profile.name if names == every else "some of " + profile.name
            full = self._warm(label, "compile", names, _files(names))
            with self._lock:
                for name, test in full["tests"].items():
                    profile.tests[name]["seconds"] = test["seconds"]
                known = self._known[profile.name]
                files = list(known["files"])
                known["modules"] = sorted(
                    {*known["modules"], *self._own_files(full["modules"])} - set(files)
                )
                known["base"] = self._base(known["modules"], files)
                self._write()

    def _own_files(self, modules):
        return {str(Path(place).relative_to(self.root)) for place in modules if self._own(place)}

    def _warm(self, profile, mode, names, files, worker=None):
        """Have a worker run tests without a mutant, and stay ready for their mutants."""
        worker = worker or self._worker("")
        result = worker.ask(
            {
                "tests": names, "files": files, "mode": mode, "selected": 0, "limits": {},
                "stop": True, "warm": True,
            }
        )  # fmt: skip
        if result["failed"] or result["status"] not in (0, 1):
            failed = result["failed"] or {"test": "", "message": f"status {result['status']}"}
            raise CampaignFailed(
                f"{self.file}: without a mutant {failed['test']} fails: {failed['message']} "
                f"(log: {worker.log})"
            )
        worker.warm = f"{profile} {mode}"
        self._release(worker)
        return result

    def _own(self, place):
        path = Path(place)
        return (
            path.is_relative_to(self.root)
            and "build" not in path.relative_to(self.root).parts
            and ".venv" not in path.relative_to(self.root).parts
            and "mutate" not in path.parts
        )

    def _digest(self, file):
        path = self.root / file
        return hashlib.sha256(path.read_bytes() if path.is_file() else b"").hexdigest()

    def _base(self, modules, tests):
        """Changes when the file, its mutants or anything that a test imports changes."""
        names = sorted({self.file, *modules} - set(tests))
        parts = [[mutant.name for mutant in self.mutants], *((n, self._digest(n)) for n in names)]
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    # Mutants ---------------------------------------------------------------------------------

    def run(self, mutants, *, report=None) -> list[Outcome]:
        """Try ``mutants``; ``report`` is called with every :class:`Outcome`."""
        jobs, outcomes, errors = queue.SimpleQueue(), {}, []
        for mutant in mutants:
            jobs.put(mutant)

        def work():
            try:
                while not errors:
                    mutant = jobs.get_nowait()
                    outcome = outcomes[mutant.number] = self._try(mutant)
                    if report is not None:
                        report(outcome)
            except queue.Empty:
                pass
            except BaseException as error:  # raised again below
                errors.append(error)

        threads = [threading.Thread(target=work, daemon=True) for _ in range(self.jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)
        if errors:
            raise errors[0]
        self._write()
        return [outcomes[mutant.number] for mutant in mutants]

    def close(self):
        """End all processes."""
        for worker in self._workers:
            worker.close()
        self._workers = []

    def _try(self, mutant):
        outcome = self._with("block", self.block, mutant)
        if outcome.verdict == KILLED or not self.system or self.spared(mutant):
            return outcome
        if self.block.kind(mutant.number) == GENERATOR:
            return outcome
        files = [file for file in SYSTEM_TESTS if file not in self.tests]
        if not files:
            return outcome
        with self._lock:
            if self.whole is None:
                self.whole = self._profile("system", files)
        beyond = self._with("system", self.whole, mutant)
        return beyond if beyond.verdict == KILLED else outcome

    def _with(self, name, profile, mutant):
        """What the tests of a profile make of a mutant; known results are taken."""
        results = self._known[name]["results"]
        known = results.get(mutant.name)
        if known and (known["message"] != _QUICK_ONLY or self.spared(mutant)):
            return Outcome(mutant=mutant, **known)
        verdict, test, message = self._run_tests(profile, mutant)
        with self._lock:
            results[mutant.name] = {"verdict": verdict, "test": test, "message": message}
            if test:
                self._kills[test] = self._kills.get(test, 0) + 1
            self._write()
        return Outcome(mutant=mutant, **results[mutant.name])

    def _run_tests(self, profile, mutant):
        simulated = profile.reaching(mutant.number, compiled=False)
        compiled = profile.reaching(mutant.number, compiled=True)
        for mode, names in (("simulate", simulated), ("compile", compiled)):
            if not names:
                continue
            if mode == "compile" and profile.kind(mutant.number) == GENERATOR:
                if simulated:
                    break
                return UNTESTED, "", "a number of the generator: needs a build of its own"
            if mode == "compile" and simulated and self.spared(mutant):
                return SURVIVED, "", _QUICK_ONLY
            if mode == "compile":
                self._compile(profile)
            result = self._task(profile, mutant, mode, names)
            if result["failed"]:
                return KILLED, result["failed"]["test"], result["failed"]["message"]
            if result["status"] != 0:
                raise CampaignFailed(f"{self.file}, {mutant.name}: status {result['status']}")
        return SURVIVED, "", "" if simulated or compiled else "no test reaches it"

    def _task(self, profile, mutant, mode, names):
        def promising(name):
            if name == self._hints.get(mutant.name):
                return -math.inf
            return -(self._kills.get(name, 0) + 0.3) / (profile.tests[name]["seconds"] + 0.2)

        names = sorted(names, key=promising)
        task = {
            "tests": names, "files": _files(names), "mode": mode, "selected": mutant.number,
            "stop": True, "warm": False, "limits": {
                name: _TIMES_AS_LONG * profile.tests[name]["seconds"] + _LONGER_SECONDS
                for name in names
            },
        }  # fmt: skip
        worker = self._warm_worker(profile, mode, mutant)
        result = worker.ask(task)
        self._release(worker)
        return result

    def _warm_worker(self, profile, mode, mutant):
        """A worker that has imported the tests; a fresh one, if the mutant shows at import."""
        if str(mutant.number) in profile.at_import:
            return self._worker("")
        worker = self._worker(f"{profile.name} {mode}")
        if not worker.warm:
            compiled = mode == "compile"
            names = [name for name, t in profile.tests.items() if t["compiled"] == compiled]
            # To import is enough, but what is to be compiled must be elaborated.
            few = (
                names if compiled else sorted(names, key=lambda n: profile.tests[n]["seconds"])[:1]
            )
            self._warm(profile.name, mode, few, _files(names), worker)
            worker = self._worker(f"{profile.name} {mode}")
        return worker

    def _worker(self, warm):
        """A worker that is free and as ``warm``, or a fresh one."""
        with self._idle_lock:
            for wanted in (warm, ""):
                for worker in self._idle:
                    if worker.warm == wanted:
                        self._idle.remove(worker)
                        return worker
            log = self.directory / f"{self._stem}.{len(self._workers)}.log"
            self._workers.append(Worker(self.root, self.file, log))
            return self._workers[-1]

    def _release(self, worker):
        with self._idle_lock:
            self._idle.append(worker)

    # Results ---------------------------------------------------------------------------------

    def _read(self):
        try:
            return json.loads(self._store.read_text())
        except (OSError, ValueError):
            return {}

    def _write(self):
        write_whole(self._store, json.dumps(self._known, indent=1) + "\n")


def _file(test):
    return test.partition("::")[0]


def _files(tests):
    return list(dict.fromkeys(map(_file, tests)))


def sample(mutants, count, seed):
    """``count`` of the mutants, chosen at random, in their order; all if ``count`` is None."""
    if count is None or count >= len(mutants):
        return list(mutants)
    chosen = random.Random(seed).sample(range(len(mutants)), count)
    return [mutants[index] for index in sorted(chosen)]
