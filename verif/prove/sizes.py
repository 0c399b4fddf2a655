"""Which queues and stream registers the hardware contains, in which sizes."""

import contextlib
import functools
import inspect

from amaranth.hdl import Fragment, Shape
from amaranth.lib import fifo

from hw.accelerator import Accelerator
from hw.config import make_config
from hw.primitives import stream_register

__all__ = ["PRESETS_OF_SIZES", "made", "queue_sizes", "register_widths"]

#: Presets of ``max`` whose sizes are proven.
PRESETS_OF_SIZES = ("paper", "tiny")


def queue_sizes(name: str) -> dict[str, dict[str, int]]:
    """Arguments of every FIFO of the class ``name`` of ``amaranth.lib.fifo``, by "WIDTHxDEPTH"."""
    found = {size for preset in PRESETS_OF_SIZES for size in made(preset)[name]}
    return {f"{width}x{depth}": {"width": width, "depth": depth} for width, depth in sorted(found)}


def register_widths(name: str) -> dict[str, dict[str, int]]:
    """The same for the stream registers, by their bits."""
    found = {size for preset in PRESETS_OF_SIZES for size in made(preset)[name]}
    return {f"{width} bits": {"width": width} for width in sorted(found)}


@functools.cache
def made(preset: str) -> dict[str, set]:
    """The sizes of all queues and registers of ``max``, by their class."""
    sizes = {}
    with contextlib.ExitStack() as stack:
        for block in (fifo.SyncFIFO, fifo.SyncFIFOBuffered):
            found = sizes.setdefault(block.__name__, set())
            stack.enter_context(
                _recorded(block, found, lambda given: (given["width"], given["depth"]))
            )
        for block in (stream_register.SkidBuffer, stream_register.HalfRateRegister):
            found = sizes.setdefault(block.__name__, set())
            stack.enter_context(
                _recorded(block, found, lambda given: Shape.cast(given["shape"]).width)
            )
        Fragment.get(Accelerator(make_config(variant="max", preset=preset)), None)
    return sizes


@contextlib.contextmanager
def _recorded(block, found, size):
    """Meanwhile every ``block`` that is made adds its ``size`` to ``found``."""
    original = block.__init__
    signature = inspect.signature(original)

    def init(self, *given, **named):
        found.add(size(signature.bind(self, *given, **named).arguments))
        original(self, *given, **named)

    block.__init__ = init
    try:
        yield
    finally:
        block.__init__ = original
