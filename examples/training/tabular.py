"""Two linear layers learn to tell wines apart by 13 measurements of each: no images.

.venv/bin/python -m examples.training.tabular
"""

import argparse

import numpy as np
import torch
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from runtime import Accelerator, Trainer, make_config


def run(device: str = "emulator", epochs: int = 8) -> float:
    """Share of the wines held out that are classified correctly."""
    torch.manual_seed(0)
    features, labels = load_wine(return_X_y=True)
    features = (features - features.mean(0)) / features.std(0)
    train, test, train_labels, test_labels = train_test_split(
        torch.tensor(features, dtype=torch.float32), torch.tensor(labels), random_state=0
    )
    model = nn.Sequential(nn.Linear(13, 16), nn.ReLU(), nn.Linear(16, 3))

    with Accelerator(make_config(variant="baseline", preset="tiny"), device=device) as accelerator:
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        trainer = Trainer(model, accelerator, method="bp", optimizer=optimizer)
        trainer.fit(DataLoader(TensorDataset(train, train_labels), batch_size=19), epochs)
        classes = accelerator.predict(trainer.model, test)
    right = float(np.mean(classes == test_labels.numpy()))
    print(f"{right:.1%} of {len(test)} wines")
    return right


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("emulator", "rtl"), default="emulator")
    parser.add_argument("--epochs", type=int, default=8)
    run(**vars(parser.parse_args()))
