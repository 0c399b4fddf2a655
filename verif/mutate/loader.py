"""Imports one module in its rewritten form."""

import importlib.abc
import importlib.machinery
import sys
from pathlib import Path

from .rewrite import rewrite

__all__ = ["install", "module_name"]


def module_name(file: str) -> str:
    """``hw/dma/store.py`` -> ``hw.dma.store``."""
    return file.removesuffix(".py").replace("/", ".")


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles the rewritten source; no bytecode is stored."""

    def __init__(self, name, path, file):
        super().__init__(name, path)
        self.file = file

    def get_code(self, fullname):
        tree, _ = rewrite(Path(self.path).read_text(), self.file)
        return compile(tree, self.path, "exec")


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, root, file):
        self.root = root
        self.file = file
        self.name = module_name(file)

    def find_spec(self, fullname, path=None, target=None):
        if fullname != self.name:
            return None
        place = str(self.root / self.file)
        return importlib.machinery.ModuleSpec(
            fullname, _Loader(fullname, place, self.file), origin=place
        )


def install(root: Path, file: str) -> None:
    """From now on the module of ``file`` is the rewritten one; it must not be imported yet.

    Raises
    ------
    RuntimeError
        The original has been imported.
    """
    if module_name(file) in sys.modules:
        raise RuntimeError(f"{module_name(file)} has been imported before it was rewritten")
    sys.meta_path.insert(0, _Finder(root, file))
