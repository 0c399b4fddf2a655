"""What can be trained, kind by kind: the table in docs/operators.md."""

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["OPERATORS", "Operator", "operator_table"]


@dataclass(frozen=True, kw_only=True)
class Operator:
    """A kind of layers.

    Members
    -------
    kind : as in :class:`compiler.frontend.layer.Layer`; "" for what is no layer of its own
    written : modules, and functions in ``forward``, as names
    runs : forward and backward, where they run
    predicted : whether its weights can be predicted in Phase GP
    conditions : what is refused otherwise
    """

    kind: str
    written: tuple[str, ...]
    forward: str
    backward: str
    predicted: bool = False
    conditions: str = ""


_WINDOWS = "`ceil_mode`; padding of at most half the window"
_ARRAY = "array, POST"
_VECTOR = "VECTOR"
_NOTHING = "moves nothing"

#: In the order of the table.
OPERATORS = (
    Operator(
        kind="convolution", written=("Conv2d",), forward=_ARRAY, backward=_ARRAY, predicted=True,
        conditions="zero padding, `padding=\"same\"` of any kernel included; any kernel, stride, "
        "dilation and groups; with groups it is not predicted",
    ),
    Operator(
        kind="depthwise", written=("Conv2d",), forward=_VECTOR, backward=_VECTOR, predicted=True,
        conditions="as many groups as input and as output channels",
    ),
    Operator(
        kind="linear", written=("Linear",), forward=_ARRAY, backward=_ARRAY, predicted=True,
        conditions="of vectors: behind a flattening or another vector; of every vector of a "
        "sequence (N, T, C)",
    ),
    Operator(
        kind="transposed", written=("ConvTranspose2d",), forward="array, POST; the bias in VECTOR",
        backward="array, POST; of the bias VECTOR",
        conditions="zero padding; `output_padding` less than the stride; any kernel, stride, "
        "dilation and groups",
    ),
    Operator(
        kind="batch_norm", written=("BatchNorm2d", "BatchNorm1d"), forward=_VECTOR,
        backward=_VECTOR,
        conditions="in training mode, or without `track_running_stats`; with or without `affine`; "
        "a momentum; `BatchNorm1d` of vectors; more than one pixel per channel in a batch",
    ),
    Operator(
        kind="fixed_norm", written=("BatchNorm2d", "BatchNorm1d"), forward=_VECTOR,
        backward=_VECTOR,
        conditions="in evaluation mode: a scaling by running statistics, which stay as they are; "
        "weight and bias learn",
    ),
    Operator(
        kind="layer_norm", written=("LayerNorm",), forward="VECTOR, array",
        backward="VECTOR, array",
        conditions="over every vector of a sequence; with or without weight and bias",
    ),
    Operator(
        kind="group_norm", written=("GroupNorm",), forward="VECTOR, array",
        backward="VECTOR, array",
        conditions="any groups; with or without `affine`",
    ),
    Operator(
        kind="attention", written=("scaled_dot_product_attention", "matmul", "bmm"),
        forward="array, VECTOR", backward="array, VECTOR",
        conditions="of sequences (N, T, C), or of heads as "
        "`x.view(N, T, heads, C).transpose(1, 2)` makes them, each of whole granules of channels "
        "(4 at 16 bits and 8 bytes); `is_causal`, `scale`; `attn_mask` a constant, of booleans or "
        "numbers, (queries, keys) for all sentences and heads; `dropout_p`. Or as products: "
        "`softmax(q @ k.transpose(-2, -1) * scale + mask, dim=-1) @ v`, perhaps with `Dropout` of "
        "the softmax, where `masked_fill` with -10,000 or less hides a key",
    ),
    Operator(
        kind="softmax", written=("Softmax", "Softmax2d", "softmax"), forward="array, VECTOR",
        backward="array, VECTOR",
        conditions="over the channels of maps (`dim=1`), vectors, or sequences (`dim=-1`)",
    ),
    Operator(
        kind="embedding", written=("Embedding",), forward=_ARRAY, backward=_ARRAY,
        conditions="of an input of the network, tokens (N, T), which the host's `batch` writes as "
        "vectors with a 1; the vector of `padding_idx` is 0; no `max_norm`, no "
        "`scale_grad_by_freq`",
    ),
    Operator(
        kind="relu", written=("ReLU", "relu", "clamp", "clip"), forward="POST or VECTOR",
        backward=_VECTOR,
        conditions="in POST behind a product, in the same pass behind a batch normalisation; "
        "`clamp` with `min=0` alone",
    ),
    Operator(
        kind="clamp", written=("ReLU6", "Hardtanh", "relu6", "hardtanh", "clamp", "clip"),
        forward=_VECTOR, backward=_VECTOR,
        conditions="two limits that are finite and not nearly equal; the gradient at a limit is 0, "
        "that of `clamp`, too",
    ),
    Operator(
        kind="max_pool",
        written=("MaxPool2d", "AdaptiveMaxPool2d", "max_pool2d", "adaptive_max_pool2d"),
        forward=_VECTOR, backward=_VECTOR,
        conditions=f"no dilation, no indices; {_WINDOWS}; an adaptive output size that divides the "
        "map",
    ),
    Operator(
        kind="average_pool",
        written=("AvgPool2d", "AdaptiveAvgPool2d", "avg_pool2d", "adaptive_avg_pool2d", "mean"),
        forward=_VECTOR, backward=_VECTOR,
        conditions=f"{_WINDOWS}; `count_include_pad`, `divisor_override`; an adaptive output size "
        "that divides the map; the mean over height and width, in one step or in two "
        "that follow each other, `x.mean(3).mean(2)` or `x.flatten(2).mean(2)`, or over the "
        "vectors of a sequence",
    ),
    Operator(
        kind="leaky_relu", written=("LeakyReLU", "leaky_relu"), forward=_VECTOR, backward=_VECTOR,
        conditions="a slope that is not negative",
    ),
    Operator(
        kind="hardsigmoid", written=("Hardsigmoid", "hardsigmoid"), forward=_VECTOR,
        backward=_VECTOR,
    ),
    Operator(
        kind="hardswish", written=("Hardswish", "hardswish"), forward=_VECTOR, backward=_VECTOR,
    ),
    Operator(
        kind="sigmoid", written=("Sigmoid", "sigmoid"), forward=_VECTOR, backward=_VECTOR,
    ),
    Operator(kind="tanh", written=("Tanh", "tanh"), forward=_VECTOR, backward=_VECTOR),
    Operator(kind="silu", written=("SiLU", "silu"), forward=_VECTOR, backward=_VECTOR),
    Operator(
        kind="gelu", written=("GELU", "gelu"), forward=_VECTOR, backward=_VECTOR,
        conditions="`approximate`",
    ),
    Operator(
        kind="softplus", written=("Softplus", "softplus"), forward=_VECTOR, backward=_VECTOR,
        conditions="`beta=1`, a threshold of at least 20",
    ),
    Operator(
        kind="add", written=("add", "sub", "subtract", "rsub"), forward=_VECTOR,
        backward="moves nothing; VECTOR with `alpha` and for differences",
        conditions="two maps of one shape, or one of a single row, column or pixel, which an "
        "upsampling repeats; `alpha`",
    ),
    Operator(
        kind="multiply", written=("mul", "multiply"), forward=_VECTOR, backward=_VECTOR,
        conditions="as of additions",
    ),
    Operator(
        kind="affine", forward=_VECTOR,
        written=("add", "sub", "subtract", "rsub", "mul", "multiply", "truediv", "true_divide",
                 "div", "divide", "neg", "negative"),
        backward="VECTOR; moves nothing where only a number is added",
        conditions="a map and a number; no division by a map",
    ),
    Operator(
        kind="upsample",
        written=("Upsample", "UpsamplingNearest2d", "interpolate", "expand", "expand_as"),
        forward=_VECTOR, backward=_VECTOR, conditions="`nearest`, by whole factors",
    ),
    Operator(
        kind="concatenate", written=("cat", "concat", "concatenate"),
        forward="moves nothing, or LOAD and STORE, or array and POST",
        backward="moves nothing, or array and POST",
        conditions="of channels. A part is copied if it is the input, or joined twice. If a part "
        "that is not the last has no whole granules of channels (4 at 16 bits and 8 bytes), a "
        "product with ones and zeros joins all of them",
    ),
    Operator(
        kind="slice", written=("chunk", "split", "narrow", "getitem"),
        forward="moves nothing, or array and POST", backward="moves nothing, or array and POST",
        conditions="of channels: `x[:, a:b]` of maps and vectors, `x[..., a:b]` of sequences; "
        "parts are taken one by one, `a, b = x.chunk(2, dim=1)`. A slice that does not begin and "
        "end with granules of channels is made by a product with ones and zeros; so are gradients, "
        "but those of a map that slices of whole granules divide among each other",
    ),
    Operator(
        kind="flatten", forward=_NOTHING, backward=_NOTHING,
        written=("Flatten", "flatten", "view", "reshape", "squeeze", "unsqueeze", "transpose",
                 "permute", "swapaxes", "swapdims", "mT", "unflatten"),
        conditions="everything but the batch, or back to the map that it was; channels of a "
        "sequence to heads, and back; axes of a sequence or of its heads in another order for the "
        "products of an attention alone",
    ),
    Operator(
        kind="dropout", written=("Dropout", "Dropout2d", "dropout", "dropout2d"),
        forward="VECTOR; moves nothing in evaluation, or with p=0", backward=_VECTOR,
        conditions="p below 1; `Dropout2d` of maps",
    ),
    Operator(
        kind="", written=("Identity", "contiguous", "clone"), forward=_NOTHING, backward=_NOTHING,
    ),
)  # fmt: skip


def operator_table() -> str:
    """All of them as a table in Markdown."""
    rows = [("layer", "written as", "forward", "backward", "predicted", "conditions")]
    rows += [
        (
            operator.kind.replace("_", " ") or "none",
            _names(operator.written),
            operator.forward,
            operator.backward,
            "yes" if operator.predicted else "",
            operator.conditions,
        )
        for operator in OPERATORS
    ]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], f"|{' --- |' * len(rows[0])}", *lines[1:]]) + "\n"


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
