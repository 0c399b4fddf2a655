"""What a measurement does to the ratios."""

import pytest
import torch
from torch import nn

from algorithms.vcas.controller import Controller, VCASConfig
from algorithms.vcas.layers import SampledLayer


@pytest.fixture
def layers():
    return [SampledLayer(name, nn.Linear(2, 2)) for name in ("low", "high")]


def measurement(added=0.0, *, norms=None, rows=0.0):
    """SGD's variance of each layer is 2; sampling images adds ``added`` to each of them."""
    names = ("low", "high")
    exact = [{name: torch.full((2,), float(sign)) for name in names} for sign in (1, -1)]
    shift = torch.full((2,), (added / 2) ** 0.5)
    sampled = [[{name: whole[name] + shift for name in names}] * 2 for whole in exact]
    norms = norms or {name: torch.ones(10) for name in names}
    return exact, sampled, [norms, norms], dict.fromkeys(names, rows)


def test_the_share_of_norm_follows_the_variance(layers):
    """Both layers together have a variance of 4 + 4 by SGD."""
    controller = Controller(layers, VCASConfig())
    controller.adjust(*measurement(added=0.0))
    assert controller.norm == pytest.approx(0.99)
    assert controller.added == (0.0, 8.0)
    controller.adjust(*measurement(added=0.11))  # 0.22 is above 2.5 % of 8
    assert controller.norm == pytest.approx(1.0)
    controller.adjust(*measurement(added=0.11))
    assert controller.norm == 1.0
    controller.adjust(*measurement(added=0.09))
    assert controller.norm == pytest.approx(0.99)


def test_no_layer_keeps_less_than_one_below_it(layers):
    norms = {"low": torch.ones(10), "high": torch.tensor([1000.0] + [1.0] * 9)}
    controller = Controller(layers, VCASConfig(norm_step=0.5, smoothing=0.6))
    controller.adjust(*measurement(norms=norms))  # s is 0.5: of low 5 of 10, of high 1 of 10
    low, high = (layer.ratio for layer in layers)
    assert low == pytest.approx(0.6 + 0.4 * 0.5)
    assert high == pytest.approx(max(low, 0.6 + 0.4 * 0.1))


def test_ratios_of_rows_go_up_and_down(layers):
    controller = Controller(layers, VCASConfig())
    controller.adjust(*measurement(rows=0.05))
    assert [layer.weights_ratio for layer in layers] == [0.95, 0.95]
    controller.adjust(*measurement(rows=0.2))  # above 2.5 % of 4
    assert [layer.weights_ratio for layer in layers] == pytest.approx([1.0, 1.0])
    state = controller.state_dict()
    controller.adjust(*measurement())
    assert [layer.weights_ratio for layer in layers] == pytest.approx([0.95, 0.95])
    controller.load_state_dict(state)
    assert controller.state_dict() == state


def test_wrong_choices_are_named():
    with pytest.raises(ValueError, match="every cannot be 0; smoothing cannot be 1.5"):
        VCASConfig(every=0, smoothing=1.5)
