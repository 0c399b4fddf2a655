"""A residual network with batch normalisation: trained, then used, on the same accelerator.

.venv/bin/python -m examples.training.residual
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

from runtime import Accelerator, Trainer, make_config


class Block(nn.Module):
    """Two convolutions, and the block's input on top of what they yield."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + x)


class Residual(nn.Module):
    """Four classes of digits from images of 8 x 8."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, stride=2, padding=1)
        self.block = Block(8)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.block(self.stem(x)).mean((2, 3)))


def run(device: str = "emulator", epochs: int = 6, batch: int = 24) -> tuple[float, float]:
    """Accuracy on digits held out: the accelerator's, and torch's with the same weights."""
    torch.manual_seed(0)
    images, labels = (torch.tensor(part) for part in load_digits(n_class=4, return_X_y=True))
    images = (images / 8 - 1).float().reshape(-1, 1, 8, 8)
    train, test = slice(0, 480), slice(480, None)

    model = Residual()
    with Accelerator(make_config(variant="baseline", preset="tiny"), device=device) as accelerator:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        trainer = Trainer(model, accelerator, method="bp", optimizer=optimizer)
        batches = list(zip(images[train].split(batch), labels[train].split(batch), strict=True))
        trainer.fit(batches, epochs)
        # Running statistics now, folded into the convolutions.
        classes = torch.from_numpy(accelerator.predict(trainer.model, images[test]))
    with torch.no_grad():
        reference = trainer.model.eval()(images[test]).argmax(1)
    right, expected = (float((c == labels[test]).float().mean()) for c in (classes, reference))
    print(f"{right:.1%} of {len(classes)} digits; torch with these weights {expected:.1%}")
    return right, expected


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("emulator", "rtl"), default="emulator")
    parser.add_argument("--epochs", type=int, default=6)
    run(**vars(parser.parse_args()))
