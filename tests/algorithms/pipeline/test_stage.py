"""A stage's part of ADA-GP."""

import torch
from torch import nn

from algorithms.adagp.trainer import AdaGPTrainer
from algorithms.networks.registry import SMALL
from algorithms.pipeline.stage import StageTrainer
from golden.prediction.config import PredictorConfig
from golden.prediction.schedule import ScheduleConfig, Stage

SCHEDULE = ScheduleConfig(warm_up=0, ladder=(Stage(gp=1, epochs=None),))


def trained(kind, seed, images, labels, parts=1):
    """A network after four batches, with its predictor, by either trainer."""
    torch.manual_seed(seed)
    model = SMALL["vgg"]((1, 8, 8), 10, width=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    options = {"predictor": PredictorConfig(), "schedule": SCHEDULE}
    if kind is AdaGPTrainer:
        trainer = AdaGPTrainer(model, optimizer, **options)
        for batch in range(4):
            trainer.step(images[batch], labels[batch])
        return trainer
    trainer = StageTrainer(model, optimizer, last=True, **options)
    for batch in range(4):
        targets, outputs = labels[batch].chunk(parts), []
        with torch.set_grad_enabled(trainer.phase.backpropagates), trainer.micro_batches():
            outputs = [model(each) for each in images[batch].chunk(parts)]
        if trainer.phase.backpropagates:
            for output, target in zip(outputs, targets, strict=True):
                nn.functional.cross_entropy(output, target).backward()
            for parameter in model.parameters():
                parameter.grad /= parts
        trainer.finish(outputs, targets)
    return trainer


def test_one_micro_batch_is_the_ordinary_trainer(seed):
    """Every weight, the predictor, gates and statistics, bit for bit."""
    torch.manual_seed(seed + 1)
    images, labels = torch.randn(4, 8, 1, 8, 8), torch.randint(0, 10, (4, 8))
    own = trained(StageTrainer, seed, images, labels).state_dict()
    other = trained(AdaGPTrainer, seed, images, labels).state_dict()
    assert str(own) == str(other)
    for part in ("model", "source"):
        for name, value in other[part].items():
            if torch.is_tensor(value):
                assert torch.equal(own[part][name], value), f"{part}.{name}"


def test_micro_batches_are_means(seed):
    """Of the same images twice: what a batch of them does, but for rounding."""
    torch.manual_seed(seed + 1)
    images, labels = torch.randn(4, 4, 1, 8, 8), torch.randint(0, 10, (4, 4))
    twice = [each.repeat(1, 2, *[1] * (each.dim() - 2)) for each in (images, labels)]
    one = trained(StageTrainer, seed, images, labels)
    two = trained(StageTrainer, seed, *twice, parts=2)
    for (name, value), other in zip(
        one.model.named_parameters(), two.model.parameters(), strict=True
    ):
        torch.testing.assert_close(value, other, rtol=1e-4, atol=1e-6, msg=name)
