"""A network of one function."""

from torch import nn

__all__ = ["Forward"]


class Forward(nn.Module):
    """A network of a function."""

    def __init__(self, function, **modules):
        super().__init__()
        self.function = function
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, x):
        return self.function(self, x)
