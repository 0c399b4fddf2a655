"""The main job: a CNN reads handwritten digits on the generated hardware."""

from dataclasses import dataclass

import numpy as np
import torch

from algorithms.networks import digits_cnn

from .execute import Execution, execute
from .workload import Workload, prepare

__all__ = ["DigitsResult", "digits_workload", "run_digits"]

_CALIBRATION_IMAGES = 256


@dataclass(frozen=True, kw_only=True)
class DigitsResult:
    """One configuration's run: the execution, and the share of images read correctly by the RTL,
    by golden and by torch in float32."""

    execution: Execution
    images: int
    rtl_accuracy: float
    golden_accuracy: float
    torch_accuracy: float


def digits_workload(
    config, *, images: int, seed: int = 1, placement=None, report=None, residual: bool = False
) -> Workload:
    """The trained network, or a residual one, and the first ``images`` test images."""
    data = digits_cnn.load(seed)
    if not 1 <= images <= len(data.test_images):
        raise ValueError(f"images must be from 1 to {len(data.test_images)}, not {images}")
    if residual:
        model = digits_cnn.trained_residual(seed, report=report)
        return prepare(
            f"digits-residual {config.variant} {config.operand_format}",
            model,
            config,
            data.test_images[:images],
        )
    return prepare(
        f"digits {config.variant} {config.operand_format}",
        digits_cnn.trained_model(seed, report=report),
        config,
        data.test_images[:images],
        placement=placement,
        calibration=data.train_images[:_CALIBRATION_IMAGES],
    )


def run_digits(
    config, *, images: int, seed: int = 1, report=None, residual: bool = False, **options
) -> DigitsResult:
    """Classify ``images`` test images on the RTL, with a residual network if asked for; ``options``
    go to :func:`execute`."""
    workload = digits_workload(config, images=images, seed=seed, report=report, residual=residual)
    execution = execute(workload, seed=seed, **options)
    data = digits_cnn.load(seed)
    labels = data.test_labels[:images]
    tensor = workload.program.outputs[-1]
    rtl = workload.logits(tensor.unpack(execution.outcomes[0].memory))
    with torch.no_grad():
        model = digits_cnn.trained_residual(seed) if residual else digits_cnn.trained_model(seed)
        reference = model(digits_cnn.to_torch(data.test_images[:images]))
    return DigitsResult(
        execution=execution,
        images=images,
        rtl_accuracy=digits_cnn.accuracy(rtl, labels),
        golden_accuracy=digits_cnn.accuracy(workload.logits(workload.expected[-1]), labels),
        torch_accuracy=digits_cnn.accuracy(np.asarray(reference), labels),
    )
