"""Choices of gradient prediction, all in one place; docs/algorithm.md explains each."""

from dataclasses import dataclass

__all__ = ["HEADS", "OPTIMIZERS", "SOURCES", "PredictorConfig"]

SOURCES = ("predictor", "mean", "last", "coast", "history")
HEADS = ("exact", "predicted", "held")
OPTIMIZERS = ("sgd", "adam")


@dataclass(frozen=True, kw_only=True)
class PredictorConfig:
    """The predictor, what is done to its input and output, and how it learns.

    Members
    -------
    source : where Phase GP takes gradients from: "predictor"; "mean" or "last", the running mean or
        the latest of the true gradients; "coast", none, so that the optimizer's momentum acts
        alone; "history", a network of the latest gradient and running means
    channels : c, of its convolution
    map_size : S; one fully connected layer follows with c · S² inputs
    standardize : subtract a layer's running mean from the input and divide by its running standard
        deviation
    scale : multiply the output by the running root mean square of the layer's true gradient, and
        learn the gradient divided by it
    gate : multiply by the confidence of :class:`algorithms.adagp.gate.Gate` as well
    zero_start : the fully connected layer starts at zero; else as torch initialises it
    head : the last linear layer in Phase GP: "exact", its true gradient from the loss; "predicted"
        as any other; "held", no update
    running : weight of the past in running values
    optimizer, learning_rate, momentum : of the predictor, "sgd" or "adam"; momentum is SGD's
    milestones : epochs (counted from 0) at whose start its learning rate is divided by 10
    seed : of its initial weights

    Raises
    ------
    ValueError
        naming every field that is wrong.
    """

    source: str = "predictor"
    channels: int = 4
    map_size: int = 4
    standardize: bool = True
    scale: bool = True
    gate: bool = True
    zero_start: bool = True
    head: str = "exact"
    running: float = 0.9
    optimizer: str = "sgd"
    learning_rate: float = 0.1
    momentum: float = 0.9
    milestones: tuple[int, ...] = ()
    seed: int = 1

    def __post_init__(self):
        problems = [
            f"{name} must be one of {', '.join(allowed)}, not {getattr(self, name)!r}"
            for name, allowed in (("source", SOURCES), ("head", HEADS), ("optimizer", OPTIMIZERS))
            if getattr(self, name) not in allowed
        ]
        problems += [
            f"{name} must be an integer of at least {least}, not {getattr(self, name)!r}"
            for name, least in (("channels", 1), ("map_size", 1), ("seed", 0))
            if not isinstance(getattr(self, name), int) or getattr(self, name) < least
        ]
        problems += [
            f"{name} must be at least 0 and below 1, not {getattr(self, name)!r}"
            for name in ("running", "momentum")
            if not 0 <= getattr(self, name) < 1
        ]
        if not self.learning_rate > 0:
            problems.append(f"learning_rate must be above 0, not {self.learning_rate!r}")
        if problems:
            raise ValueError("PredictorConfig: " + "; ".join(problems))

    @property
    def features(self) -> int:
        """Inputs of the fully connected layer, F."""
        return self.channels * self.map_size**2

    @classmethod
    def paper(cls, **changes) -> "PredictorConfig":
        """The method as the paper describes it, without what we added."""
        values = {
            "standardize": False,
            "scale": False,
            "gate": False,
            "zero_start": False,
            "head": "predicted",
            "optimizer": "adam",
            "learning_rate": 1e-4,
            "milestones": (20, 40),
        }
        return cls(**(values | changes))
