"""From the words on the command line to a configuration, with all problems found at once."""

import argparse
import dataclasses
import difflib
import json
import tomllib
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any

from .accelerator import PRESETS, AdaGPConfig, ConfigError

__all__ = ["DEFAULT_PRESET", "add_settings", "select_config"]

DEFAULT_PRESET = "paper"

_FIELDS = {field.name: field for field in dataclasses.fields(AdaGPConfig)}


def _unknown(name: str, where: str | PathLike[str]) -> str:
    close = difflib.get_close_matches(str(name), _FIELDS, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else f"; fields are {', '.join(_FIELDS)}"
    return f"unknown field {name!r} in {where}{hint}"


def _read_file(path: str | PathLike[str], problems: list[str]) -> dict[str, Any]:
    """Fields and preset from a JSON or TOML file; a manifest's fields are under "config"."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not UTF-8 text"
        problems.append(f"configuration file {path}: {reason}")
        return {}
    try:
        content = tomllib.loads(text) if str(path).endswith(".toml") else json.loads(text)
    except ValueError as error:
        problems.append(f"configuration file {path}: {error}")
        return {}
    if isinstance(content, dict) and "generator" in content:
        content = content.get("config")
    if not isinstance(content, dict):
        problems.append(f"configuration file {path} must hold a table of fields")
        return {}
    return content


def _read_settings(settings: Iterable[str], problems: list[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        name, text = name.strip(), text.strip()
        if not equals or not name:
            problems.append(f"--set needs key=value, not {setting!r}")
        elif name not in _FIELDS:
            problems.append(_unknown(name, "--set"))
        elif name in values:
            problems.append(f"--set gives {name} twice")
        else:
            values[name] = text
            if _FIELDS[name].type is int:
                try:
                    values[name] = int(text, 0)
                except ValueError:
                    pass  # the configuration says that it wants an integer
            elif _FIELDS[name].type is bool:
                values[name] = {"true": True, "false": False}.get(text.lower(), text)
    return values


def select_config(
    *,
    variant: str | None = None,
    preset: str | None = None,
    settings: Iterable[str] = (),
    file: str | PathLike[str] | None = None,
) -> AdaGPConfig:
    """Return the configuration; later ones win: preset, file, ``variant``, ``settings``.

    Parameters
    ----------
    settings : sequence of "key=value"
    file : path of a JSON or TOML file with fields, and perhaps "preset", or of a manifest

    Raises
    ------
    ConfigError
        with everything that is wrong.
    """
    problems: list[str] = []
    fields = _read_file(file, problems) if file is not None else {}
    file_preset = fields.pop("preset", None)
    preset = preset or file_preset or DEFAULT_PRESET
    if preset not in PRESETS:
        problems.append(f"preset must be one of {', '.join(PRESETS)}, not {preset!r}")
        preset = DEFAULT_PRESET
    problems += [_unknown(name, str(file)) for name in fields if name not in _FIELDS]
    fields = {name: value for name, value in fields.items() if name in _FIELDS}
    if variant is not None:
        fields["variant"] = variant
    values = _read_settings(settings, problems)
    if variant is not None and values.get("variant", variant) != variant:
        problems.append(f"--variant {variant} contradicts --set variant={values['variant']}")
    try:
        config = AdaGPConfig(**{**PRESETS[preset][1], **fields, **values})
    except ConfigError as error:
        raise ConfigError(problems + error.problems) from None
    if problems:
        raise ConfigError(problems)
    return config


def add_settings(parser: argparse._ActionsContainer) -> None:
    """Give ``parser`` the option ``--set``: ``settings``, for :func:`select_config`."""
    parser.add_argument(
        "--set",
        dest="settings",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="one field of the configuration; may be repeated; python -m rtl_gen --list names them",
    )
