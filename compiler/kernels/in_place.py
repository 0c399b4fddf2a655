"""Contents of blocks that a command makes of what was loaded, in place."""

from compiler.codegen.core_builder import CoreProgram, Need

__all__ = ["Derived"]


class Derived:
    """What a layer makes of boxes of a tensor, kept as loaded boxes are.

    Parameters
    ----------
    program : CoreProgram
    """

    def __init__(self, program: CoreProgram):
        self.program = program
        self._loaded = set()

    def need(self, tensor, *box):
        """The box as this makes it."""
        need = self.program.need(tensor, *box)

        def load(block):
            need.load(block)
            self._loaded.add(block)

        return Need((self, *need.key), need.words, load)

    def make(self, block, command):
        """Call ``command``, which emits what changes the block, if it was loaded since."""
        if block in self._loaded:
            self._loaded.remove(block)
            command()

    def drop(self):
        """Nobody needs them any longer."""
        self.program.scratch.drop_keys(lambda key: isinstance(key, tuple) and key[0] is self)
