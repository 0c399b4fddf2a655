"""Steps of parameters: their tensors, and their update."""

from typing import Any

from compiler.codegen.view import Coefficient
from compiler.frontend.layer import Layer
from compiler.kernels.updates.rules import Rule
from compiler.kernels.updates.update import update
from compiler.tensors.parameters import StoredParameter, channel_pitch

from .map_steps import MapSteps
from .optimizer import Optimizer

__all__ = ["ParameterSteps"]


class ParameterSteps(MapSteps):
    """What layers with parameters have in common.

    Members
    -------
    parameters : of :func:`compiler.tensors.parameters.stored_parameters`
    optimizer : :class:`~compiler.training.optimizer.Optimizer`
    """

    parameters: dict[str, StoredParameter]
    optimizer: Optimizer

    def _role(self, name: str, role: str) -> str | None:
        """Name of a parameter's tensor; None where it does not exist."""
        found = name in self.parameters and self.parameters[name].tensors.get(role)
        return found.name if found else None

    def _gradients(self, layer: Layer) -> list[str | None]:
        """Names of the gradients of weight and bias; None for what is frozen or missing."""
        return [self._role(f"{layer.name}.{name}", "gradient") for name in ("weight", "bias")]

    def _precision(self, layer: Layer) -> dict[str, Any]:
        """Kind and pitch of a product's map: an output's stays float32."""
        if layer.output is None:
            return {}
        return {"kind": "float32", "pitch": channel_pitch(layer.shape[0], self.config)}

    def _updates(self, layer: Layer) -> None:
        for name in layer.trainable:
            tensors = self.parameters[name].tensors
            names = [tensor.name for tensor in tensors.values()]
            changed = [tensor.name for role, tensor in tensors.items()
                       if role not in ("gradient", "mask")]  # fmt: skip
            self._add(name, "update", update, self.parameters[name].placed_as,
                      reads=names, writes=changed, rule=self._rule)  # fmt: skip

    @property
    def _rule(self) -> Rule:
        """What an update does, with its coefficients in the registers."""
        rate, momentum, decay, braking = (Coefficient(index=index) for index in (0, 1, 2, 5))
        return self.optimizer.rule(rate=rate, momentum=momentum, decay=decay, braking=braking)
