"""The table of operators: up to date, and complete."""

from pathlib import Path

from compiler.__main__ import main
from compiler.adagp.predicted_layers import PREDICTABLE
from compiler.frontend import attention, functions, heads, slices
from compiler.frontend.supported_layers import CHECKS
from compiler.training.operators import OPERATORS, operator_table
from compiler.training.steps import TrainingSteps

DOCUMENT = Path(__file__).parents[3] / "docs/operators.md"


def test_the_document_has_the_table(capsys):
    """``python -m compiler --operators`` prints what docs/operators.md ends with."""
    assert main(["--operators"]) == 0
    table = capsys.readouterr().out
    assert table == operator_table()
    assert DOCUMENT.read_text().endswith("\n\n" + table)


def test_every_way_to_write_a_layer_is_in_the_table():
    named = [name for operator in OPERATORS for name in operator.written]
    targets = [*functions.FUNCTIONS, *functions.COMBINING, *functions.RESHAPING, *CHECKS]
    targets += [*attention.ATTENTION, *attention.PRODUCTS, *heads.REARRANGING, *slices.SLICING]
    known = {getattr(target, "__name__", target) for target in targets}
    assert set(named) == known


def test_every_kind_has_both_directions():
    kinds = {operator.kind for operator in OPERATORS} - {""}
    for direction in ("forward", "backward"):
        start = f"_{direction}_"
        own = {name.removeprefix(start) for name in dir(TrainingSteps) if name.startswith(start)}
        assert kinds == own - {"order"}, direction
    assert {operator.kind for operator in OPERATORS if operator.predicted} == set(PREDICTABLE)
