"""The methods that are compared, and the controls that belong to them."""

from dataclasses import dataclass

from algorithms.vcas.controller import VCASConfig
from golden.prediction.config import PredictorConfig

__all__ = ["CONTESTANTS", "REFERENCE", "Contestant"]


#: What others are compared with, unless they say otherwise.
REFERENCE = "bp"


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """A method.

    Members
    -------
    summary : what it does
    batch : images of a batch, as a share of the comparison's
    predictor : Phase GP's source of gradients; None: there is no Phase GP
    vcas : how the backward pass is sampled; None: it is whole
    braking : ρ of Adaptive Braking; 0: none
    delay : steps by which gradients come late
    stages : of a pipeline without barriers, whose stages get gradients late by what that makes
    accumulate : batches whose gradients are averaged for one update
    echo : steps of the head alone behind every batch, on the batch's features
    head_rate : the head's learning rate over that of the others
    optimizer : "sgd", with momentum, "adam" or "adamomentum"
    rate_share : what the comparison's rates are multiplied by
    against : the method that it is compared with
    """

    summary: str
    batch: float = 1.0
    predictor: PredictorConfig | None = None
    vcas: VCASConfig | None = None
    braking: float = 0.0
    delay: int = 0
    stages: int = 1
    accumulate: int = 1
    echo: int = 0
    head_rate: float = 1.0
    optimizer: str = "sgd"
    rate_share: float = 1.0
    against: str = REFERENCE

    @property
    def program(self) -> str | None:
        """What the accelerator runs for it, as ``python -m perf steps`` calls it; None where it has
        no program: VCAS, sources of gradients other than the predictor, a rate of the head's own,
        gradients that come late."""
        if (
            self.predictor not in (None, PredictorConfig())
            or self.vcas is not None
            or self.head_rate != 1
            or self.delay + self.stages + self.accumulate > 2
            or self.optimizer == "adamomentum"
        ):
            return None
        if self.predictor is not None:
            return "adagp"
        if self.echo:
            return f"echo{self.echo}"
        return "braked" if self.braking else {"sgd": "bp"}.get(self.optimizer, self.optimizer)


_LAST = PredictorConfig(source="last", gate=False)
_MEAN = PredictorConfig(source="mean", gate=False)
_COAST = PredictorConfig(source="coast")
_FIXED = VCASConfig(every=10**9, ratio=0.5, weights_ratio=0.5)
_HISTORY = PredictorConfig(source="history", learning_rate=0.01)
_HALF, _THIRD = 1 / 2, 1 / 3
#: Rates of Adam are about so much smaller than those of SGD.
_ADAM = 1 / 20

CONTESTANTS = {
    name: Contestant(summary=summary, **options)
    for name, summary, options in (
        ("bp", "backpropagation of every batch, which is skipping for equal time", {}),
        ("bp-half", "backpropagation of batches half as large", {"batch": _HALF}),
        ("bp-third", "backpropagation of batches a third as large", {"batch": _THIRD}),
        ("head-rate", "bp, the head with five times the rate", {"head_rate": 5.0}),
        ("echo", "bp, and four more steps of the head on each batch", {"echo": 4}),
        ("echo-half", "echo with batches half as large", {"batch": _HALF, "echo": 4}),
        ("adagp", "ADA-GP, scaled and gated", {"predictor": PredictorConfig()}),
        ("last", "Phase GP with the latest true gradient", {"predictor": _LAST}),
        ("mean", "Phase GP with the running mean of true gradients", {"predictor": _MEAN}),
        ("coast", "Phase GP with momentum alone and an exact head", {"predictor": _COAST}),
        ("history", "Phase GP with gradients that a network makes of those before",
         {"predictor": _HISTORY}),
        ("vcas", "VCAS: backward passes of a sample", {"vcas": VCASConfig(every=50)}),
        ("vcas-half", "half of the images, half of their rows, without a controller",
         {"vcas": _FIXED}),
        ("braking", "Adaptive Braking, rho 1", {"braking": 1.0}),
        ("adam", "bp with Adam, a twentieth of the rates",
         {"optimizer": "adam", "rate_share": _ADAM}),
        ("adamomentum", "bp with AdaMomentum, a twentieth of the rates",
         {"optimizer": "adamomentum", "rate_share": _ADAM}),
        ("stages", "four stages of a pipeline without barriers: gradients late by 6, 4, 2, 0",
         {"stages": 4}),
        ("stages-accumulate", "the same, an update from the gradients of two batches",
         {"stages": 4, "accumulate": 2, "against": "stages"}),
    )
} | {
    f"{name}-delay{delay}": Contestant(
        summary=f"{'Adaptive Braking' if rho else 'bp'}, gradients {delay} steps late",
        braking=rho, delay=delay, against=f"bp-delay{delay}" if rho else REFERENCE,
    )
    for delay in (8, 24, 32)
    for name, rho in (("bp", 0.0), ("braking", 1.0))
}  # fmt: skip
