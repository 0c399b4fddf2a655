"""Counting: what is mapped once counts as often as it is used, in the block that uses it."""

from collections import Counter

from synth.common.hierarchy import block_counts, kept_modules, total

# Two columns of five LUTs in the array, one decoder used by the array; core and top of their own.
MODULES = {
    "adagp_low": ({"LUT4": 1}, {"adagp_core0": 1, "adagp_low.fetch": 1}),
    "adagp_low.fetch": ({"LUT4": 20}, {}),
    "adagp_core0": ({"LUT4": 3}, {"adagp_core0.matrix.array": 1}),
    "adagp_core0.matrix.array": (
        {"TRELLIS_FF": 7},
        {"adagp_column_bf16_2": 2, "adagp_decoder_bf16_d4": 1},
    ),
    "adagp_column_bf16_2": ({"LUT4": 5, "MULT18X18D": 2}, {"adagp_decoder_bf16_d4": 3}),
    "adagp_decoder_bf16_d4": ({"LUT4": 1}, {}),
}


def statistics(modules):
    return {name: {"cells": cells, "modules": inner} for name, (cells, inner) in modules.items()}


def test_blocks():
    blocks = block_counts(statistics(MODULES), "adagp_low")
    assert blocks == {
        "top": Counter(LUT4=1),
        "core0": Counter(LUT4=3),
        "core0.matrix.array": Counter(TRELLIS_FF=7, LUT4=2 * (5 + 3) + 1, MULT18X18D=4),
        "fetch": Counter(LUT4=20),
    }
    assert total(blocks)["LUT4"] == 41


def test_a_number_that_tells_names_apart_is_not_shown():
    modules = {"adagp_low": ({}, {"adagp_low.x$27": 1}), "adagp_low.x$27": ({"LUT4": 2}, {})}
    assert block_counts(statistics(modules), "adagp_low") == {"x": Counter(LUT4=2)}


def test_repeated_modules_are_no_blocks():
    """Nor are modules inside them that were not flattened."""
    modules = {
        "a": ({}, {"adagp_column_bf16_2": 2}),
        "adagp_column_bf16_2": ({"LUT4": 1}, {"adagp_column_bf16_2.rounder": 1}),
        "adagp_column_bf16_2.rounder": ({"LUT4": 4}, {}),
    }
    assert block_counts(statistics(modules), "a") == {"top": Counter(LUT4=10)}


def test_kept_modules():
    names = (
        "adagp_low",
        "adagp_low.fetch",
        "adagp_low.fetch.fifo",
        "adagp_core0",
        "adagp_core0.load",
        "adagp_core0.load.packer",
        "adagp_core0.matrix",
        "adagp_core0.matrix.array",
        "adagp_column_bf16_2",
        "adagp_column_bf16_2.rounder",
        "adagp_pe_bf16_d3",
        "adagp_ram_64x8_8",
    )
    assert kept_modules(names, "adagp_low") == [
        "adagp_low.fetch",
        "adagp_core0",
        "adagp_core0.load",
        "adagp_core0.matrix.array",
        "adagp_column_bf16_2",
    ]
