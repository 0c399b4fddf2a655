"""Files of compiled programs: one format for programs of every kind.

A file is an ``.npz`` archive: ``meta``, a JSON text, and arrays of bytes. The JSON text holds the
version of the format, the kind of program, the configuration, and the program's own fields, which
:func:`plain` makes of dataclasses and :func:`rebuild` takes back by their annotations.
"""

import contextlib
import dataclasses
import io
import json
import types
import typing
from collections.abc import Collection, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from cli.atomic_files import replacing
from hw.config import AdaGPConfig, ConfigError

__all__ = [
    "KINDS",
    "ProgramError",
    "SavedProgram",
    "is_container",
    "plain",
    "read",
    "rebuild",
    "reading",
    "write",
]

_MAGIC = b"PK"
_FORMAT_VERSION = 11
#: Kind -> what it is, and what loads it.
KINDS = {
    "inference": ("an inference program", "compiler.CompiledProgram.load"),
    "training": ("a training program", "compiler.TrainingProgram.load"),
    "adagp": ("an ADA-GP program", "compiler.AdaGPProgram.load"),
}


class ProgramError(ValueError):
    """A file that holds no program, or another one; the text says what is wrong with it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SavedProgram:
    """What a file holds.

    Members
    -------
    kind : of :data:`KINDS`
    config : the configuration that the program is for
    fields : the program's own fields, as :func:`plain` made them
    arrays : name -> bytes
    """

    kind: str
    config: AdaGPConfig
    fields: dict[str, Any]
    arrays: dict[str, bytes]


def is_container(data: bytes) -> bool:
    """Whether ``data`` begins like a saved program rather than a raw command stream."""
    return data[: len(_MAGIC)] == _MAGIC


def write(path: str | PathLike[str], saved: SavedProgram) -> None:
    """Write ``saved`` to one file, which appears whole or not at all."""
    meta = {
        "version": _FORMAT_VERSION,
        "kind": saved.kind,
        "config": saved.config.as_dict(),
        "program": saved.fields,
    }
    arrays = {name: np.frombuffer(data, np.uint8) for name, data in saved.arrays.items()}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, meta=np.array(json.dumps(meta)), **arrays)
    with replacing(path) as file:
        file.write(buffer.getvalue())


def read(
    path: str | PathLike[str], kind: str | None = None, config: AdaGPConfig | None = None
) -> SavedProgram:
    """What :func:`write` wrote.

    Parameters
    ----------
    kind : of :data:`KINDS`, if the file must hold this one
    config : the configuration that it must be for; None for any

    Raises
    ------
    ProgramError
        for a file that is no saved program, damaged, of another version, kind or configuration.
    OSError
        for one that cannot be read.
    """
    data = Path(path).read_bytes()
    if not is_container(data):
        raise ProgramError(f"{path} is not a saved program")
    with reading(path):
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        meta = json.loads(str(arrays.pop("meta")))
        if meta["version"] != _FORMAT_VERSION:
            raise ProgramError(
                f"{path} has format version {meta['version']}, not {_FORMAT_VERSION}; "
                "compile it again"
            )
        found = meta["kind"]
        what, loader = KINDS[found]
        if kind is not None and found != kind:
            raise ProgramError(f"{path} holds {what}, not {KINDS[kind][0]}; {loader} reads it")
        try:
            own = AdaGPConfig(**meta["config"])
        except (TypeError, ConfigError) as error:
            raise ProgramError(
                f"{path} is for a configuration that does not exist: {error}"
            ) from None
        if config is not None and own != config:
            raise ProgramError(f"{path} is for another configuration: {_different(own, config)}")
        return SavedProgram(
            kind=found,
            config=own,
            fields=meta["program"],
            arrays={name: array.tobytes() for name, array in arrays.items()},
        )


@contextlib.contextmanager
def reading(path: str | PathLike[str]) -> Iterator[None]:
    """Whatever goes wrong with the content in this context is a :class:`ProgramError`."""
    try:
        yield
    except ProgramError:
        raise
    except Exception as error:
        raise ProgramError(f"{path} is damaged: {error!r}") from error


def plain(value: Any, *, leave_out: Collection[str] = ()) -> dict[str, Any]:
    """A dataclass as JSON has it, without its fields in ``leave_out``."""
    return {
        field.name: _plain(getattr(value, field.name))
        for field in dataclasses.fields(value)
        if field.name not in leave_out
    }


def rebuild(kind: Any, value: Any) -> Any:
    """A value of the type ``kind``, as annotations name it, from what JSON has made of it.

    ``kind`` is a dataclass, ``list``, ``tuple``, ``dict`` or ``Mapping``, with or without the types
    of what is in it, a type that JSON has, or one of these or None.
    """
    origin, inner = typing.get_origin(kind) or kind, typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        (other,) = [part for part in inner if part is not types.NoneType]
        return None if value is None else rebuild(other, value)
    if isinstance(origin, type) and dataclasses.is_dataclass(origin):
        return origin(**rebuild_fields(origin, value))
    if origin in (dict, Mapping):
        if not inner:
            return dict(value)
        # JSON knows no keys but texts.
        return {inner[0](key): rebuild(inner[1], item) for key, item in value.items()}
    if origin is list:
        return [rebuild(inner[0], item) if inner else item for item in value]
    if origin is tuple:
        if inner and inner[-1] is not Ellipsis:
            return tuple(rebuild(part, item) for part, item in zip(inner, value, strict=True))
        return tuple(rebuild(inner[0], item) if inner else item for item in value)
    return value


def rebuild_fields(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the dataclass ``kind`` that are among ``values``, by name."""
    hints = typing.get_type_hints(kind)
    return {name: rebuild(hints[name], value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return plain(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _different(own: AdaGPConfig, wanted: AdaGPConfig) -> str:
    """The fields in which two configurations differ."""
    own, wanted = own.as_dict(), wanted.as_dict()
    return ", ".join(
        f"{name} {own[name]}, not {value}" for name, value in wanted.items() if own[name] != value
    )
