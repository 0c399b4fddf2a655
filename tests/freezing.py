"""A network of which parts are frozen, for the tests of golden, compiler and verif."""

import torch
from torch import nn

__all__ = ["CLASSES", "FROZEN", "SHAPE", "Everything", "network"]

#: (C, H, W) of an image, and classes.
SHAPE, CLASSES = (2, 7, 6), 3


class Everything(nn.Module):
    """Every kind of layer with parameters, an addition, both kinds of pooling."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(2, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.pool = nn.MaxPool2d(2, 1)
        self.depthwise = nn.Conv2d(6, 6, 3, padding=1, groups=6)
        self.depthwise_norm = nn.BatchNorm2d(6)
        self.grouped = nn.Conv2d(6, 6, 1, groups=2)
        self.average = nn.AvgPool2d(2)
        self.head = nn.Linear(6 * 3 * 2, CLASSES)

    def forward(self, x):
        x = self.pool(torch.relu(self.norm(self.first(x))))
        y = torch.relu(self.depthwise_norm(self.depthwise(x)))
        x = torch.relu(x + self.grouped(y))
        return self.head(torch.flatten(self.average(x), 1))


#: What is frozen: a function of the name of a parameter.
FROZEN = {
    "nothing": lambda name: False,
    "the first layers": lambda name: name.startswith(("first", "norm")),
    "all but the head": lambda name: not name.startswith("head"),
    "the head": lambda name: name.startswith("head"),
    "a branch": lambda name: name.startswith(("depthwise", "grouped")),
    "weights": lambda name: name.endswith(".weight"),
    "biases": lambda name: name.endswith(".bias"),
    "all but a scale": lambda name: name != "norm.weight",
    "all but a shift": lambda name: name != "norm.bias",
    "all but a bias": lambda name: name != "grouped.bias",
    "a scale and a shift": lambda name: name in ("norm.weight", "depthwise_norm.bias"),
}


def network(seed, frozen):
    """A network in training with frozen parameters, by the name of what is frozen."""
    torch.manual_seed(seed)
    model = Everything()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not FROZEN[frozen](name))
    return model.train()
