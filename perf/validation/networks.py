"""The model beside results of ``verif run networks``, which say what the RTL has counted."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from compiler.adagp.compile import PredictorShape, compile_adagp
from compiler.adagp.program import AdaGPProgram
from compiler.training.compile import compile_training
from compiler.training.program import TrainingProgram
from golden.prediction.config import PredictorConfig
from hw.config import AdaGPConfig, make_config
from perf.counted.count import MODELS
from verif.networks.reduced.reduced_networks import CLASSES, IMAGES, REDUCED

from .compare import Comparison, compared, on_model

__all__ = ["compare_results"]


def compare_results(path: str, *, model: str = MODELS[0]) -> Iterator[Comparison]:
    """Compile the networks again, and run their batches on a model
    (:data:`~perf.counted.count.MODELS`).

    Raises
    ------
    ValueError
        a file that is none of ``verif run networks --json``, or one without counters, of another
        configuration than the preset's or of a memory that paused.
    """
    with open(path, encoding="utf-8") as file:
        rows = json.load(file)
    for row in rows if isinstance(rows, list) else [rows]:
        if not isinstance(row, dict) or not {"network", "batches", "method"} <= row.keys():
            raise ValueError(f"{path} holds no results of `verif run networks --json`")
        if row.get("error") or row.get("device", "rtl") != "rtl":
            continue
        if not all("counters" in batch for batch in row["batches"]):
            raise ValueError(f"{path}: the results of {row['network']} have no counters")
        if row.get("stall_share"):
            raise ValueError(f"{path}: the memory of {row['network']} paused, the model's does not")
        config = make_config(variant=row["variant"], preset=row["preset"])
        if row.get("configuration", config.hash) != config.hash:
            raise ValueError(f"{path}: {row['network']} ran with other settings than its preset's")
        program, latency = _program(row, config), row.get("latency", 0)
        seen = set()
        for batch in row["batches"]:
            if batch["phase"] in seen:
                continue
            seen.add(batch["phase"])
            part = _part(program, batch["phase"])
            result = on_model(
                model, part.commands, part.config, offset=part.program, latency=latency
            )
            assert result is not None, "batches of networks have neither ROWS nor BATCH"
            yield compared(
                batch["counters"], result,
                case=f"{row['network']}-{row['method']}", variant=row["variant"],
                preset=row["preset"], latency=latency, number=row["batches"].index(batch),
            )  # fmt: skip


def _program(row: dict[str, Any], config: AdaGPConfig) -> TrainingProgram | AdaGPProgram:
    """As verif.networks.reduced.reduced_networks.network_run compiles it, without golden's
    numbers."""
    shape = row["shape"]
    shape = [tuple(part) for part in shape] if isinstance(shape[0], list) else tuple(shape)
    reduced = replace(REDUCED[row["network"]], shape=shape, width=row["width"])
    options: dict[str, Any] = {
        "images": IMAGES, "loss": reduced.loss, "beside": row.get("beside"),
    }  # fmt: skip
    with torch.device("meta"):
        model = reduced.make(shape, CLASSES, width=reduced.width).train()
    if row["method"] == "bp":
        return compile_training(model, config, shape, reuse=False, **options)
    chosen = PredictorConfig()
    predictor = PredictorShape(
        channels=chosen.channels, map_size=chosen.map_size, running=chosen.running
    )
    return compile_adagp(model, config, shape, shape=predictor, **options)


def _part(program: TrainingProgram | AdaGPProgram, phase: str) -> TrainingProgram:
    if isinstance(program, AdaGPProgram):
        return program.parts["gp" if phase == "G" else "bp"]
    return program
