"""What a machine costs: from the repository's measured syntheses, and by a model fitted to them."""

from .measured import FLOWS, Synthesis, syntheses
from .memories import block_rams, sram_macros
from .model import AreaModel, fitted

__all__ = [
    "FLOWS", "AreaModel", "Synthesis", "block_rams", "fitted", "sram_macros", "syntheses",
]  # fmt: skip
