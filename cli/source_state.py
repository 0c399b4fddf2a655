"""Which state of the project something was made with."""

import subprocess

from .build_directory import PROJECT_ROOT

__all__ = ["source_state"]


def source_state(*folders: str) -> str:
    """The last commit that changed ``folders`` of the project, by default the last one at all, in
    seven digits; with "+" behind it if they have changes that are not committed. Empty where the
    project is no checkout of git."""
    try:
        if _git("rev-parse", "--show-toplevel") != str(PROJECT_ROOT):
            return ""
        commit = _git("log", "-1", "--format=%h", "--abbrev=7", "--", *folders)
        changed = _git("status", "--porcelain", "--", *folders)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return commit + "+" * bool(commit and changed)


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(PROJECT_ROOT), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip()
