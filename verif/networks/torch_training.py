"""The same training in torch, in float32: for its losses and its accuracy, not for its bits."""

import copy

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from algorithms.braking import optimizer as braked
from golden.layers.optimizer import SGD, AdamW, BrakedSGD

__all__ = ["of_torch", "torch_training"]


def of_torch(optimizer, parameters):
    """Torch's own, of golden's optimizer."""
    options = {"lr": optimizer.learning_rate, "weight_decay": optimizer.weight_decay}
    if isinstance(optimizer, BrakedSGD):
        momentum, rho = optimizer.momentum, optimizer.braking
        return braked.BrakedSGD(parameters, momentum=momentum, rho=rho, **options)
    if isinstance(optimizer, SGD):
        options |= {"momentum": optimizer.momentum, "nesterov": optimizer.nesterov}
        return torch.optim.SGD(parameters, **options)
    kind = torch.optim.AdamW if isinstance(optimizer, AdamW) else torch.optim.Adam
    return kind(parameters, betas=optimizer.betas, eps=optimizer.epsilon, **options)


def torch_training(model, batches, images, labels, *, echo: int = 0) -> tuple[list, float]:
    """Losses of torch in float32 on the same batches, and its accuracy on ``images`` then.

    Behind every batch come ``echo`` steps of the last linear layer on what the batch brought to it.
    """
    model, losses = copy.deepcopy(model).train(), []
    head = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
    features = {}
    head.register_forward_hook(lambda _, inputs, __: features.update(x=inputs[0].detach()))
    optimizer = of_torch(batches[0].optimizer, model.parameters())

    def learn(outputs, targets):
        loss = functional.cross_entropy(outputs, targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.item()

    for batch in batches:
        optimizer.param_groups[0]["lr"] = batch.optimizer.learning_rate
        targets = torch.from_numpy(batch.targets)
        losses.append(learn(model(_to_torch(batch.images)), targets))
        for _ in range(echo):
            learn(functional.linear(features["x"], head.weight, head.bias), targets)
    with torch.no_grad():
        outputs = model.eval()(_to_torch(images))
    return losses, float((outputs.argmax(1).numpy() == labels).mean())


def _to_torch(images):
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(images, 3, 1)).astype(np.float32))
