"""A host's view of the accelerator: train a module, run it, whatever the device is.

accelerator = Accelerator(make_config(variant="max", preset="tiny"), device="rtl")
trainer = Trainer(model, accelerator, optimizer=torch.optim.SGD(model.parameters(), lr=0.05))
history = trainer.fit(loader, epochs=5)
"""

from hw.config import make_config

from .accelerator import Accelerator
from .check import Difference
from .device import DEVICES, Device
from .errors import AcceleratorError, DifferenceFound
from .history import EpochRecord, History
from .trainer import METHODS, Trainer

__all__ = [
    "Accelerator",
    "AcceleratorError",
    "DEVICES",
    "Device",
    "Difference",
    "DifferenceFound",
    "EpochRecord",
    "History",
    "METHODS",
    "Trainer",
    "make_config",
]
