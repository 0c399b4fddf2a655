"""Which layers learn by gradient prediction."""

from collections.abc import Collection, Sequence

from compiler.errors import CompileError
from compiler.frontend.torch_graph import Layer, backward_order, outputs

__all__ = ["PREDICTABLE", "predicted_layers"]

#: Kinds of layers whose weights are predicted.
PREDICTABLE = ("convolution", "depthwise", "linear")


def predicted_layers(
    layers: Sequence[Layer], wanted: Collection[str] | None = None
) -> tuple[list[str], str | None]:
    """(names of the predicted layers in order, name of the head or None).

    The head is the only output, if it is linear and a parameter of it learns: its gradient is exact
    and cheap. Grouped, frozen and unused layers (no output depends on them) are not predicted.

    Raises
    ------
    CompileError
        for a name in ``wanted`` that cannot be predicted, and if no layer is left.
    """
    last, *others = outputs(layers)
    head = last.name if not others and last.kind == "linear" and last.trainable else None
    candidates = set(backward_order(layers)) - {head}
    able = [
        layer.name
        for layer in layers
        if layer.kind in PREDICTABLE
        and layer.name in candidates
        and f"{layer.name}.weight" in layer.trainable
        and (layer.kind != "convolution" or layer.options["groups"] == 1)
    ]
    if wanted is not None:
        for name in wanted:
            if name not in able:
                raise CompileError(
                    f"layer {name} cannot be predicted; layers that can are "
                    f"{', '.join(able) or 'none'}"
                )
        able = [name for name in able if name in set(wanted)]
    if not able:
        raise CompileError(
            f"the network has no layer whose gradient could be predicted; besides the head, "
            f"{head or 'a last linear layer'}, it must have an ungrouped or depthwise Conv2d or a "
            "Linear whose weight is trainable"
        )
    return able, head
