"""The list of equivalent mutants: an entry must match, and no test may kill what it names."""

import pytest

from verif.mutate.covering import hardware_files
from verif.mutate.equivalents import Equivalents
from verif.mutate.operators import INVERTED, Mutant
from verif.mutate.rewrite import rewrite
from verif.sim.environment import PROJECT_ROOT

ENTRY = """
[[equivalent]]
file = "hw/toy.py"
scope = "Toy.elaborate"
operator = "inverted condition"
change = ["~a -> a", "~b -> b"]
reason = "nobody looks"
"""


def mutant(number, change, **others):
    values = {
        "file": "hw/toy.py", "line": 7, "scope": "Toy.elaborate", "operator": INVERTED,
        "statement": f"x.eq({change})",
    }  # fmt: skip
    return Mutant(number=number, change=change, **values | others)


MUTANTS = [mutant(1, "~a -> a"), mutant(2, "~b -> b"), mutant(3, "~c -> c")]


def read(path, text):
    path.write_text(text)
    return Equivalents.read(path)


def test_an_entry_gives_the_reason(tmp_path):
    equivalents = read(tmp_path / "list.toml", ENTRY)
    assert [equivalents.reason(m) for m in MUTANTS] == ["nobody looks", "nobody looks", None]
    assert equivalents.reason(mutant(4, "~a -> a", scope="Toy.other")) is None
    assert equivalents.faults("hw/toy.py", MUTANTS, killed=[MUTANTS[2].name]) == []
    assert equivalents.faults("hw/other.py", [], killed=[]) == []


def test_an_entry_that_matches_nothing(tmp_path):
    equivalents = read(tmp_path / "list.toml", ENTRY)
    assert equivalents.faults("hw/toy.py", MUTANTS[1:], killed=[]) == [
        "no mutant is hw/toy.py Toy.elaborate, inverted condition: ~a -> a"
    ]
    equivalents = read(tmp_path / "list.toml", ENTRY + 'statement = "x.eq(~a -> a)"\n')
    assert len(equivalents.faults("hw/toy.py", MUTANTS, killed=[])) == 1


def test_an_entry_that_a_test_kills(tmp_path):
    equivalents = read(tmp_path / "list.toml", ENTRY)
    assert equivalents.faults("hw/toy.py", MUTANTS, killed=[MUTANTS[0].name]) == [
        "a test kills what is called equivalent: hw/toy.py Toy.elaborate, inverted condition: "
        "~a -> a"
    ]


@pytest.mark.parametrize(
    "text",
    [
        ENTRY.replace('reason = "nobody looks"', ""),
        ENTRY.replace("nobody looks", ""),
        ENTRY + 'line = "7"\n',
    ],
)
def test_an_entry_must_be_complete(tmp_path, text):
    with pytest.raises(ValueError, match=r"list.toml: entry 1 must have file, scope, operator"):
        read(tmp_path / "list.toml", text)


def test_every_entry_matches():
    """Those of the project, without running anything."""
    equivalents = Equivalents.read()
    for file in sorted({entry.file for entry in equivalents.entries}):
        assert hardware_files(PROJECT_ROOT, [file]) == [file]
        mutants = rewrite((PROJECT_ROOT / file).read_text(), file)[1]
        assert equivalents.faults(file, mutants, killed=[]) == []
