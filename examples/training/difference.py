"""A bit of a weight turns over: ``check=True`` names the batch, the tensor and the number.

.venv/bin/python -m examples.training.difference
"""

import argparse

import torch
from torch import nn

from runtime import Accelerator, DifferenceFound, Trainer, make_config


def run(device: str = "emulator") -> DifferenceFound | None:
    """What is found behind the batch after the fault; None if nothing is."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    batches = [(torch.randn(4, 6), torch.randint(3, (4,))) for _ in range(4)]
    with Accelerator(make_config(variant="max", preset="tiny"), device=device) as accelerator:
        trainer = Trainer(model, accelerator, method="bp", check=True)
        for number, (images, labels) in enumerate(batches):
            try:
                trainer.step(images, labels)
            except DifferenceFound as difference:
                print(difference)
                return difference
            if number == 1:
                turn_over_a_bit(trainer, "2.weight")
    return None


def turn_over_a_bit(trainer: Trainer, name: str) -> None:
    """Change the lowest bit of the exponent of a parameter's first number, in DRAM."""
    session = trainer.session
    tensor = session.program.parameters[name].tensors["master"]  # float32
    accelerator, window, place = trainer.accelerator, session.window, tensor.offset + 2
    (byte,) = accelerator.get(window, place, 1)
    accelerator.put(window, place, bytes([byte ^ 0x80]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("emulator", "rtl"), default="emulator")
    run(**vars(parser.parse_args()))
