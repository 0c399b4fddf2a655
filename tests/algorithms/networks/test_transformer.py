"""The Transformer against torch's own encoder and decoder layers, and what it is traced to."""

import pytest
import torch
from torch import nn

from algorithms.networks.transformer import Transformer
from golden.frontend.torch_graph import trace

SIZES = {"length": 6, "width": 8, "heads": 2, "layers": 2, "hidden": 12}


def copy_attention(own, other):
    """The weights of an attention of ours in an ``nn.MultiheadAttention``."""
    parts = (own.query, own.key, own.value)
    other.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
    other.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
    other.out_proj.load_state_dict(own.out.state_dict())


def copy_rest(own, other):
    first, _, second = own.forward_network
    other.linear1.load_state_dict(first.state_dict())
    other.linear2.load_state_dict(second.state_dict())
    for name in ("norm1", "norm2", "norm3"):
        if hasattr(own, name):
            getattr(other, name).load_state_dict(getattr(own, name).state_dict())


def test_layers_are_those_of_torch(seed):
    torch.manual_seed(seed)
    model = Transformer(7, 9, **SIZES)
    options = {"dim_feedforward": 12, "dropout": 0.0, "batch_first": True}
    encoder = nn.TransformerEncoderLayer(8, 2, **options)
    decoder = nn.TransformerDecoderLayer(8, 2, **options)
    x, memory = torch.randn(3, 5, 8), torch.randn(3, 6, 8)
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    with torch.no_grad():
        copy_attention(model.encoder[1].attention, encoder.self_attn)
        copy_rest(model.encoder[1], encoder)
        copy_attention(model.decoder[0].own, decoder.self_attn)
        copy_attention(model.decoder[0].other, decoder.multihead_attn)
        copy_rest(model.decoder[0], decoder)
        torch.testing.assert_close(model.encoder[1](x), encoder(x))
        torch.testing.assert_close(model.decoder[0](x, memory), decoder(x, memory, tgt_mask=mask))


def test_a_target_sees_no_later_token(seed):
    torch.manual_seed(seed)
    model = Transformer(7, 9, **SIZES)
    source, target = torch.randint(1, 7, (2, 6)), torch.randint(1, 9, (2, 5))
    other = target.clone()
    other[:, 3:] = 1 + other[:, 3:] % 8
    with torch.no_grad():
        found, expected = model(source, other), model(source, target)
    torch.testing.assert_close(found[:, :3], expected[:, :3])
    assert (found[:, 3:] - expected[:, 3:]).abs().max() > 1e-3


def test_the_layers_of_the_paper():
    """3 + 3 layers: 3 + 6 attentions, 6 + 9 normalisations, 2 embeddings, their linear layers."""
    with torch.device("meta"):
        model = Transformer(100, 110, length=32)
    model.positions = torch.zeros(32, 512)
    kinds = [node.kind for node in trace(model, [(20,), (18,)])]
    assert [kinds.count(kind) for kind in ("attention", "layer_norm", "embedding")] == [9, 15, 2]
    assert kinds.count("convolution") == 9 * 4 + 6 * 2 + 1


def test_messages():
    with pytest.raises(ValueError, match="width must be even and a multiple of heads, 3, not 8"):
        Transformer(7, 9, length=4, width=8, heads=3)
