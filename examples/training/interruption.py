"""Training that was interrupted goes on on another device, with the same bits at the end.

.venv/bin/python -m examples.training.interruption
"""

import argparse
import copy
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from runtime import Accelerator, Trainer, make_config


def run(device: str = "rtl") -> bool:
    """Whether an interrupted training, continued on ``device``, ends as one without interruption
    on the emulator."""
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(16, 6), torch.randint(3, (16,)))
    loader = DataLoader(data, batch_size=4, shuffle=True)
    start = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))

    def trainer(device):
        model = copy.deepcopy(start)
        accelerator = Accelerator(make_config(variant="max", preset="tiny"), device=device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        rates = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        return Trainer(model, accelerator, method="bp", optimizer=optimizer, scheduler=rates)

    torch.manual_seed(1)  # decides how the loader shuffles
    whole = trainer("emulator")
    whole.fit(loader, epochs=2, progress=False)

    def breaks_down():
        for number, batch in enumerate(loader):
            if number == 2:
                raise KeyboardInterrupt
            yield batch

    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "half.pt"
        torch.manual_seed(1)
        half = trainer("emulator")
        try:
            half.fit(breaks_down(), 2, checkpoint=checkpoint, checkpoint_every=1, progress=False)
        except KeyboardInterrupt:
            print(f"interrupted behind batch {half.batch}")
        torch.manual_seed(99)  # another process knows nothing of the first
        resumed = trainer(device)
        resumed.resume(checkpoint)
    resumed.fit(loader, epochs=2, progress=False)

    pairs = zip(whole.model.parameters(), resumed.model.parameters(), strict=True)
    same = all(torch.equal(one, other) for one, other in pairs)
    print("the same bits" if same else "other weights")
    for each in (whole, half, resumed):
        each.accelerator.close()
    return same


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("emulator", "rtl"), default="rtl")
    run(**vars(parser.parse_args()))
