"""Every rule of the configuration has its message, and all problems are told at once.

Covers: hw/config/accelerator.py, hw/config/check.py, hw/config/core.py, hw/formats.py.
"""

import dataclasses

import pytest

from hw.config import PRESETS, VARIANTS, AdaGPConfig, ConfigError, make_config

RULES = [
    ({"variant": "huge"}, "variant must be one of baseline, low, efficient, max, not 'huge'"),
    ({"operand_format": "bf17"}, "operand_format must be one of "),
    ({"rows": 0}, "rows must be an integer from 1 to 256, not 0"),
    ({"columns": -3}, "columns must be an integer from 1 to 256, not -3"),
    ({"rows": 257}, "rows must be an integer from 1 to 256, not 257"),
    ({"rows": "12"}, "rows must be an integer, not '12'"),
    ({"rows": 12.0}, "rows must be an integer, not 12.0"),
    ({"rows": True}, "rows must be an integer, not True"),
    ({"rows": None}, "rows must be an integer, not None"),
    ({"predictor_rows": 0}, "predictor_rows must be an integer from 1 to 256, not 0"),
    ({"predictor_columns": 0}, "predictor_columns must be an integer from 1 to 256, not 0"),
    ({"accumulator_depth": 15}, "accumulator_depth must be an integer from 16 to 65536, not 15"),
    ({"buffer_banks": 0}, "buffer_banks must be an integer from "),
    ({"buffer_bank_depth": 0}, "buffer_bank_depth must be an integer from "),
    ({"predictor_memory_banks": 0}, "predictor_memory_banks must be an integer from "),
    ({"predictor_memory_bank_depth": 0}, "predictor_memory_bank_depth must be an integer from "),
    (
        {"predictor_memory_bank_depth": 48},
        "predictor_memory_bank_depth must be a power of two, not 48",
    ),
    ({"axi_data_width": 48}, "axi_data_width must be one of 32, 64, 128, 256, 512, not 48"),
    ({"axi_address_width": 31}, "axi_address_width must be an integer from 32 to 64, not 31"),
    ({"axi_burst_beats": 0}, "axi_burst_beats must be an integer from 1 to 256, not 0"),
    ({"axi_prot": 8}, "axi_prot must be an integer from 0 to 7, not 8"),
    ({"axi_outstanding_reads": 0}, "axi_outstanding_reads must be an integer from "),
    ({"command_queue_depth": 0}, "command_queue_depth must be an integer from "),
    ({"semaphores": 17}, "semaphores must be an integer from 10 to 16, not 17"),
    ({"training": 1}, "training must be true or false, not 1"),
    ({"training": "no"}, "training must be true or false, not 'no'"),
    (
        {"post_lanes": 5},
        "post_lanes must divide rows (12) and columns (15), or be 0, not 5",
    ),
    (
        {"predictor_post_lanes": 3},
        "predictor_post_lanes must divide predictor_rows (8) and predictor_columns (10), "
        "or be 0, not 3",
    ),
    (
        {"buffer_banks": 16, "buffer_bank_depth": 1 << 20},
        "buffer_banks times buffer_bank_depth must be at most 8388608 words, not 16777216",
    ),
    (
        {"predictor_memory_banks": 9, "predictor_memory_bank_depth": 1 << 20},
        "predictor_memory_banks times predictor_memory_bank_depth must be at most 8388608 words, "
        "not 9437184",
    ),
    (
        {"axi_data_width": 512, "axi_burst_beats": 65},
        "axi_burst_beats must be at most 64 at axi_data_width 512 (a burst stays within 4 KiB), "
        "not 65",
    ),
]


@pytest.mark.parametrize(("fields", "message"), RULES, ids=lambda v: str(v)[:40])
def test_rule(fields, message):
    with pytest.raises(ConfigError) as caught:
        AdaGPConfig(**fields)
    assert len(caught.value.problems) == 1
    assert caught.value.problems[0].startswith(message)


def test_all_problems_at_once():
    with pytest.raises(ConfigError) as caught:
        AdaGPConfig(variant="none", rows=0, columns="x", axi_data_width=7)
    names = [problem.split()[0] for problem in caught.value.problems]
    assert names == ["variant", "rows", "columns", "axi_data_width"]
    assert str(caught.value) == "; ".join(caught.value.problems)


def test_every_number_is_checked():
    """No field takes zero below its minimum, a string, or a number above its maximum."""
    for field in dataclasses.fields(AdaGPConfig):
        if field.type is not int:
            continue
        for bad in (field.metadata["minimum"] - 1, field.metadata["maximum"] + 1, "1", 1.0):
            with pytest.raises(ConfigError, match=f"^{field.name} must be"):
                AdaGPConfig(**{field.name: bad})


def test_predictor_rules_hold_only_with_a_predictor_core():
    assert make_config(variant="low", predictor_post_lanes=3).pes == 180


def test_unknown_preset_and_field():
    with pytest.raises(ConfigError, match="preset must be one of tiny, ulx3s, paper, not 'x'"):
        make_config(preset="x")
    with pytest.raises(ConfigError, match="unknown field 'row'; fields are variant, "):
        make_config(row=3)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("preset", PRESETS)
def test_presets_fit_all_variants(variant, preset):
    config = make_config(variant=variant, preset=preset)
    assert len(config.cores) == (2 if variant == "max" else 1)
    assert set(config.memory_banks) == ({0, 1} if variant in ("efficient", "max") else {0})
    for core in config.cores:
        assert core.rows % core.post_lanes == core.columns % core.post_lanes == 0
        assert core.word_bytes % config.granule_bytes == 0
    assert config.beat_bytes % config.granule_bytes == 0


def test_paper_sizes():
    config = make_config()
    assert [core.pes for core in config.cores] == [180, 80]
    assert config.granule_bytes == 8


def test_hash_tells_configurations_apart():
    hashes = {make_config(variant=v, preset=p).hash for v in VARIANTS for p in PRESETS}
    assert len(hashes) == len(VARIANTS) * len(PRESETS)
    assert make_config(rows=13).hash != make_config().hash == AdaGPConfig().hash


def test_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        make_config().rows = 3


def test_training():
    main, predictor = make_config().cores
    assert main.has_vector and main.has_loss
    assert predictor.has_vector and not predictor.has_loss
    for fields in ({"training": False}, {"operand_format": "int8"}, {"preset": "ulx3s"}):
        assert not any(c.has_vector or c.has_loss for c in make_config(**fields).cores), fields


def test_lut_multiplier_rows():
    config = AdaGPConfig(variant="max", lut_multiplier_rows=12)
    assert [core.lut_multiplier_rows for core in config.cores] == [12, 0]
    with pytest.raises(ConfigError, match=r"lut_multiplier_rows must be at most rows \(12\)"):
        AdaGPConfig(lut_multiplier_rows=13)
    with pytest.raises(ConfigError, match="0 for integer formats, not 1"):
        AdaGPConfig(operand_format="int8", lut_multiplier_rows=1)
