"""What the controller holds: the median of the variance that sampling adds, not its mean.

``--long -s`` prints the table of docs/algorithm.md.

Covers: algorithms/vcas/controller.py.
"""

import statistics
from dataclasses import dataclass

import pytest
import torch

from algorithms.common.float_training import one_thread
from algorithms.data.datasets import load_images
from algorithms.networks.registry import MODELS
from algorithms.vcas.controller import VCASConfig
from algorithms.vcas.trainer import VCASTrainer
from tests.algorithms.vcas.problem import problem


def digits(seed):
    """VGG and the digits."""
    torch.manual_seed(seed)
    data = load_images("digits", seed=seed)
    model = MODELS["vgg"](tuple(data.train_images.shape[1:]), data.classes)
    return model, data.train_images, data.train_labels


@dataclass(frozen=True, kw_only=True)
class Found:
    """Of many measurements, each of which finds V_act and V_s.

    Members
    -------
    total : sum of V_act over that of the bounds, τ V_s
    error : its standard error, if measurements were independent of each other
    above : share of the measurements in which V_act is above the bound
    number : of measurements
    """

    total: float
    error: float
    above: float
    number: int


def measure(seed, *, number, make=problem, share=0.1, batch=24, learned=0, rate=0.0, repetitions=3,
            every=None, step=0.01):  # fmt: skip
    """``learned`` measurements while SGD learns at rate 0.02, then ``number`` at ``rate``.

    Those while s comes down from 1 to where it stays, by 0.2 at most, are left out.
    """
    model, inputs, labels = make(seed)
    config = VCASConfig(every=every or repetitions, repetitions=repetitions, images_share=share,
                        norm_step=step)  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02 if learned else rate, momentum=0.9)
    trainer, random = VCASTrainer(model, optimizer, config=config), torch.Generator()
    random.manual_seed(seed)
    settle = max(20, round(0.2 / step))
    found = []
    with one_thread():
        for done in range(learned + settle + number):
            if done == learned:
                optimizer.param_groups[0]["lr"] = rate
            for _ in range(config.every):
                chosen = torch.randperm(len(inputs), generator=random)[:batch]
                trainer.step(inputs[chosen], labels[chosen])
            found.append(trainer.controller.added)
    assert trainer.layers[0].ratio < 0.95  # it does leave images out
    added, bounds = zip(*((a, share * own) for a, own in found[-number:]), strict=True)
    excess = [a - bound for a, bound in zip(added, bounds, strict=True)]
    return Found(
        total=sum(added) / sum(bounds),
        error=statistics.stdev(excess) * number**0.5 / sum(bounds),
        above=sum(each > 0 for each in excess) / number,
        number=number,
    )


def test_the_sum_is_at_its_bound_before_anything_is_learned(seed):
    """At the initial weights no image stands out, and V_act - τ V_s has the same mean as median, 0.

    Each measurement is of batches of its own. Were they independent, the sum of n of them would
    have a standard error of √n times their deviation. They are not quite: one above the bound
    raises s, after which the next ones are lower. That brings the sum nearer to its bound, so the
    error is rather less. Three of it are enough for one sum in 700.
    """
    found = measure(seed, number=80)
    assert found.error < 0.07
    assert abs(found.total - 1) < 3 * found.error
    # s goes up as often as down, but for the few steps by which it ends higher or lower.
    assert abs(found.above - 0.5) < 10 / found.number


@pytest.mark.long
@pytest.mark.parametrize(
    ("settings", "least", "most"),
    [
        pytest.param({}, 0.9, 1.1, id="initial weights"),
        pytest.param({"learned": 60}, 1.03, 1.3, id="learned, then rate 0"),
        pytest.param({"learned": 60, "rate": 0.02}, 1.03, 1.3, id="learning"),
        pytest.param({"learned": 60, "step": 0.003}, 1.03, 1.3, id="steps of s of 0.003"),
        pytest.param({"learned": 60, "step": 0.03}, 1.03, 1.3, id="steps of s of 0.03"),
        pytest.param({"learned": 30, "repetitions": 2, "every": 6}, 1.08, 1.4, id="M 2"),
        pytest.param({"learned": 30, "repetitions": 6, "every": 6}, 0.95, 1.2, id="M 6"),
        pytest.param(
            {"make": digits, "share": 0.025, "batch": 64, "learned": 100, "repetitions": 2},
            0.4,
            1.1,
            id="VGG on the digits, M 2",
        ),
    ],
)
def test_the_median_is_at_the_bound_and_the_sum_where_it_may_be(
    settings, least, most, request, seed
):
    """Where few images have most of the gradient, a measurement that has one of them is far above
    the bound or far below it. The controller counts how often, and not how far."""
    found = [measure(seed + more, number=150, **settings) for more in range(0, 4000, 1000)]
    total = statistics.mean(each.total for each in found)
    error = sum(each.error**2 for each in found) ** 0.5 / len(found)
    above = statistics.mean(each.above for each in found)
    print(f"\n| {request.node.callspec.id} | {total:.2f} ± {error:.2f} | {above:.2f} |")
    assert abs(above - 0.5) < 0.04
    assert least < total < most
