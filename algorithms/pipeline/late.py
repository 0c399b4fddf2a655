"""An epoch of a pipeline that is never emptied: each stage updates itself as gradients arrive."""

import torch
from torch import distributed
from torch.func import functional_call

from .partition import example

__all__ = ["late_epoch"]


def late_epoch(plan, stages, number, trainer, trace, batches) -> None:
    """Run an epoch of stage ``number`` and, at its end, what is still under way.

    In slot t a stage takes batch t forward and batch t − d backward, and updates its weights with
    that gradient: d batches late, d = 2 (S − 1 − number). The backward pass uses the weights of its
    own forward pass, which are kept meanwhile (weight stashing, as in PipeDream,
    arXiv:1806.03377).
    """
    trace.kind = "forward"
    delay, last = plan.delays(stages)[number], number == len(stages) - 1
    module, sends, kept = trainer.model, [], {}
    batches = list(batches)
    shape = example(stages[:number], batches[0][0].shape).shape if batches else ()
    for slot in range(len(batches) + delay):
        if slot < len(batches):
            trace.batch = slot
            images, labels = batches[slot]
            inputs = images if not number else _received(shape, number - 1)
            inputs.requires_grad_(number > 0)
            weights = {
                name: each.detach().clone().requires_grad_()
                for name, each in module.named_parameters()
            }
            outputs = trace.note(
                lambda w=weights, x=inputs: functional_call(module, w, x), backward=False, number=0
            )
            kept[slot] = weights, inputs, outputs, labels
            if not last:
                sends.append(_sent(outputs, number + 1))
        if slot >= delay:
            trace.batch = slot - delay
            weights, inputs, outputs, labels = kept.pop(slot - delay)
            grown = None if last else _received(outputs.shape, number + 1)
            wanted = [*weights.values(), *([inputs] if number else [])]

            def backward(outputs=outputs, labels=labels, grown=grown, wanted=wanted):
                value = plan.loss(outputs, labels) if last else outputs
                return torch.autograd.grad(value, wanted, grown)

            gradients = trace.note(backward, backward=True, number=0)
            if number:
                sends.append(_sent(gradients[-1], number - 1))
            for parameter, gradient in zip(module.parameters(), gradients, strict=False):
                parameter.grad = gradient
            trainer.optimizer.step()
        while sends and sends[0][0].is_completed():
            sends.pop(0)
    for request, _ in sends:
        request.wait()


def _sent(tensor, rank):
    """The request, and the numbers, which must live until it is over."""
    numbers = tensor.detach().contiguous()
    return distributed.isend(numbers, rank), numbers


def _received(shape, rank):
    numbers = torch.empty(shape)
    distributed.recv(numbers, rank)
    return numbers
