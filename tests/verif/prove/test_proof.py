"""Mutants are made of copies."""

import sys

import pytest

from hw.primitives import stream_register
from verif.prove.proof import Mutant, MutantError, design_module
from verif.prove.proofs import PROOFS

NAME = "hw.primitives.stream_register"


def test_a_mutant_is_a_copy():
    mutant = Mutant(name="", old="self.i.ready.eq(~valid)", new="self.i.ready.eq(1)")
    changed = design_module(NAME, mutant)
    assert changed.HalfRateRegister is not stream_register.HalfRateRegister
    assert sys.modules[NAME] is stream_register
    assert design_module(NAME) is stream_register


def test_a_text_that_is_not_there_once():
    for old, count in (("no such text", 0), ("class ", 2)):
        with pytest.raises(MutantError, match=f"must occur once in {NAME}, not {count} times"):
            design_module(NAME, Mutant(name="", old=old, new=""))


def test_all_mutants_have_their_place():
    for proof in PROOFS.values():
        names = [mutant.name for mutant in proof.mutants]
        assert len(set(names)) == len(names), proof.name
        for mutant in proof.mutants:
            design_module(proof.module, mutant)
