"""Contents of blocks that a command makes of what was loaded, in place."""

from collections.abc import Callable

from compiler.codegen.core_builder import CoreProgram, Need
from compiler.codegen.scratchpad import Block
from compiler.tensors.intervals import Channels, Interval
from compiler.tensors.tensor import Tensor

__all__ = ["ChangedBoxes"]


class ChangedBoxes:
    """What a layer makes of boxes of a tensor, kept as loaded boxes are.

    Parameters
    ----------
    program : CoreProgram
    """

    def __init__(self, program: CoreProgram) -> None:
        self.program = program
        self._loaded: set[Block] = set()

    def need(
        self,
        tensor: Tensor,
        images: Interval,
        rows: Interval,
        columns: Interval,
        channels: Channels = None,
    ) -> Need:
        """The box as this makes it."""
        need = self.program.need(tensor, images, rows, columns, channels)

        def load(block: Block) -> None:
            assert need.load is not None, f"{tensor.name} stays on chip as it is"
            need.load(block)
            self._loaded.add(block)

        return Need((self, need.key), need.words, load)

    def make(self, block: Block, command: Callable[[], object]) -> None:
        """Call ``command``, which emits what changes the block, if it was loaded since."""
        self.program.scratch.note_change()
        if block in self._loaded:
            self._loaded.remove(block)
            command()

    def drop(self) -> None:
        """Nobody needs them any longer."""
        self.program.scratch.forget(self)
