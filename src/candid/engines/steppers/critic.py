"""Adam for critics, which have a loss of their own.

References
----------
H. Yu, Y. Chen, Z. Dai, B. K. H. Low, P. Jaillet, Implicit posterior variational inference for deep Gaussian processes
(2019).
"""

from __future__ import annotations

import torch

from candid.engines.moment import Moment
from candid.engines.steppers.adam import Adam
from candid.engines.steppers.base import Evaluate
from candid.weights import Implicit

__all__ = ["CriticAdam"]


class CriticAdam(Adam):
    """Adam along gradients of what the critics of all layers minimise, and not of the loss of the model.

    It shares a step with the steppers of the model: these see the critics as the step before has left them, and the
    critics see what these have moved.
    """

    def advance(self, evaluate: Evaluate) -> float:
        assert isinstance(evaluate, Moment)
        for parameter in self.parameters:
            parameter.grad = None
        layers = [part for part in evaluate.problem.modules() if isinstance(part, Implicit)]
        for layer in layers:
            layer.observe()
        with torch.enable_grad():
            torch.stack([layer.contrast() for layer in layers]).sum().backward(inputs=self.parameters)
        return super().advance(evaluate)
