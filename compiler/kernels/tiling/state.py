"""Blocks that several jobs work on, where they leave the rest of the memory in one piece."""

from collections.abc import Iterator
from contextlib import contextmanager

from compiler.codegen.core_builder import CoreProgram, Need
from compiler.codegen.scratchpad import Block

__all__ = ["held"]


@contextmanager
def held(program: CoreProgram, *sizes: int) -> Iterator[list[Need]]:
    """Needs of blocks of so many words, which are the first of the memory as long as the context
    lasts: what else a job needs has room if its sizes say so. Blocks that jobs take for themselves
    may lie anywhere, and then what is left is in pieces."""
    scratch = program.scratch
    whole = scratch.hold(sum(sizes))
    needs, first = [], whole.address
    for words in sizes:
        place = Block(whole.memory, first, words, fixed=True)
        needs.append(Need(object(), words, place=place))
        first += words
    try:
        yield needs
    finally:
        scratch.let_go(whole)
