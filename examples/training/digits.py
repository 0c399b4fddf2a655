"""A CNN learns to read digits, by backpropagation or with ADA-GP.

.venv/bin/python -m examples.training.digits --method adagp --epochs 6
"""

import argparse

import torch
from rich import print
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

from golden.prediction.schedule import ScheduleConfig, Stage
from runtime import Accelerator, Trainer, make_config
from runtime.history import History


def run(
    device: str = "emulator", method: str = "adagp", epochs: int = 6, images: int = 1344
) -> History:
    """Train on ``images`` digits and classify 450 others behind every epoch."""
    torch.manual_seed(0)
    digits = load_digits()
    pixels = torch.tensor(digits.images[:, None] / 8 - 1, dtype=torch.float32)  # (N, 1, 8, 8)
    data = TensorDataset(pixels, torch.tensor(digits.target))
    train, test, _ = random_split(data, [images, 450, len(data) - images - 450])

    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip
    # With ADA-GP two epochs of warm-up, then every other batch is predicted.
    half = ScheduleConfig(warm_up=2, ladder=(Stage(gp=1, bp=1, epochs=None),))
    schedule = half if method == "adagp" else None
    with Accelerator(make_config(variant="efficient", preset="tiny"), device=device) as accelerator:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        trainer = Trainer(model, accelerator, method=method, schedule=schedule, optimizer=optimizer)
        history = trainer.fit(
            DataLoader(train, batch_size=32, shuffle=True),
            epochs,
            validation=DataLoader(test, batch_size=75),
        )
    print(history.table())
    return history


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("emulator", "rtl"), default="emulator")
    parser.add_argument("--method", choices=("bp", "adagp"), default="adagp")
    parser.add_argument("--epochs", type=int, default=6)
    run(**vars(parser.parse_args()))
