"""What a pipeline trains: settings that all its processes share."""

import math
from dataclasses import dataclass, field

import torch
from torch.nn import functional

from algorithms.braking.delay import pipeline_delays
from algorithms.braking.optimizer import BrakedSGD
from algorithms.common.devices import require_device
from algorithms.data.datasets import ImageData, load_images
from algorithms.networks.registry import MODELS
from golden.prediction.config import PredictorConfig
from golden.prediction.schedule import ScheduleConfig, Stage

from .partition import Segment, cut
from .stage import StageTrainer

__all__ = ["METHODS", "SCHEDULES", "PipelinePlan"]

SCHEDULES = ("gpipe", "1f1b", "async")
METHODS = ("bp", "adagp")


@dataclass(frozen=True, kw_only=True)
class PipelinePlan:
    """A training run on a pipeline.

    Members
    -------
    data : see :func:`algorithms.data.datasets.load_images`
    model : name in MODELS, of a network that is an ``nn.Sequential``
    schedule : "gpipe"; "1f1b", one forward, one backward pass, as DAPPLE; "async", which does not
        wait for the pipeline to empty within an epoch, so that gradients are late
    method : "bp" or "adagp"; "async" takes "bp" only
    stages, micro_batches : of the pipeline, of a batch; "async" passes batches on whole
    braking : ρ of Adaptive Braking, 0 for none
    adagp : epochs of warm-up before rounds of a batch of Phase GP and one of Phase BP
    device : "cpu"; "cuda", with a GPU for every stage, for the schedules that are not "async"
    others : as usual

    Raises
    ------
    ValueError
        naming every field that is wrong.
    """

    data: str = "digits"
    model: str = "vgg"
    schedule: str = "gpipe"
    method: str = "bp"
    stages: int = 4
    micro_batches: int = 4
    epochs: int = 2
    batch: int = 64
    rate: float = 0.05
    momentum: float = 0.9
    braking: float = 0.0
    warm_up: int = 1
    seed: int = 1
    train_images: int | None = None
    test_images: int | None = None
    device: str = "cpu"
    predictor: PredictorConfig = field(default_factory=PredictorConfig)

    def __post_init__(self) -> None:
        problems = [
            f"{name} must be one of {', '.join(allowed)}, not {getattr(self, name)!r}"
            for name, allowed in
            (("schedule", SCHEDULES), ("method", METHODS), ("model", MODELS))
            if getattr(self, name) not in allowed
        ]  # fmt: skip
        leasts = (("stages", 2), ("micro_batches", 1), ("epochs", 1), ("batch", 2), ("warm_up", 0),
                  ("seed", 0))  # fmt: skip
        problems += [
            f"{name} must be at least {least}, not {getattr(self, name)!r}"
            for name, least in leasts
            if getattr(self, name) < least
        ]
        if not problems and self.batch % self.micro_batches:
            problems.append(
                f"micro_batches must divide batch, {self.batch}, not {self.micro_batches}"
            )
        if self.schedule == "async" and self.method != "bp":
            problems.append(f"method must be bp with schedule async, not {self.method!r}")
        for name, right, what in (
            ("braking", 0 <= self.braking < math.inf, "at least 0"),
            ("rate", 0 < self.rate < math.inf, "a number above 0"),
            ("momentum", 0 <= self.momentum < 1, "from 0 to below 1"),
        ):
            if not right:
                problems.append(f"{name} must be {what}, not {getattr(self, name)!r}")
        if wrong := require_device(self.device):
            problems += wrong
        elif self.device == "cuda":
            if self.schedule == "async":
                problems.append("device must be cpu with schedule async")
            if torch.cuda.device_count() < self.stages:
                problems.append(
                    f"stages must be at most {torch.cuda.device_count()}, the number of GPUs, with "
                    f"device cuda, not {self.stages}"
                )
        if problems:
            raise ValueError("; ".join(problems))

    def place(self, number: int) -> torch.device:
        """Where stage ``number`` computes."""
        return torch.device("cuda", number) if self.device == "cuda" else torch.device("cpu")

    def load(self) -> ImageData:
        """The images.

        Raises
        ------
        ValueError
            if there are fewer than a batch.
        """
        data = load_images(
            self.data, seed=self.seed, train=self.train_images, test=self.test_images
        )
        if len(data.train_labels) < self.batch:
            raise ValueError(f"batch must be at most {len(data.train_labels)}, not {self.batch}")
        return data

    def build(self, data: ImageData) -> list[Segment]:
        """The stages of a new network: the same numbers in every process."""
        torch.manual_seed(self.seed)
        shape = tuple(data.train_images.shape[1:])
        model = MODELS[self.model](shape, data.classes)
        return cut(model, self.stages, torch.zeros(1, *shape))

    def trainer(self, stages: list[Segment], number: int) -> StageTrainer:
        """For stage ``number``."""
        module, last = stages[number].train(), number == len(stages) - 1
        options = {"lr": self.rate, "momentum": self.momentum}
        parameters = module.parameters()
        optimizer = (
            BrakedSGD(parameters, rho=self.braking, **options)
            if self.braking
            else torch.optim.SGD(parameters, **options)
        )
        return StageTrainer(
            module,
            optimizer,
            predictor=self.predictor if self.method == "adagp" else None,
            schedule=ScheduleConfig(
                warm_up=self.warm_up if self.method == "adagp" else self.epochs,
                ladder=(Stage(gp=1, epochs=None),),
            ),
            last=last,
        )

    def delays(self, stages: list[Segment]) -> list[int]:
        """By how many batches the gradients of each stage are late in schedule "async"."""
        late = pipeline_delays([list(stage.parameters()) for stage in stages])
        return [late[next(stage.parameters())] for stage in stages]

    def batches(self, data: ImageData, epoch: int):
        """(images, labels) of an epoch, in random order, without what is left behind the last."""
        generator = torch.Generator().manual_seed(1000 * self.seed + epoch)
        order = torch.randperm(len(data.train_labels), generator=generator)
        for chosen in order.split(self.batch):
            if len(chosen) == self.batch:
                yield data.train_images[chosen], data.train_labels[chosen]

    @property
    def loss(self):
        """Of a micro-batch's outputs and labels."""
        return functional.cross_entropy
