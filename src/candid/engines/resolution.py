"""How large a latent function may be beside the noise, before a model of few digits takes one for the other.

A GP with inducing points adds a small share of the kernel's diagonal to its matrices, the jitter, so that they can be
factorised. Predictions are blurred where that is not small beside the noise variance. The evidence of a smooth function
that is observed with hardly any noise knows nothing of it: it prefers kernels of any size with lengthscales to match.
So an output pays for the variance of its latent function where that is beyond the limit:

    N · (log variance − log limit)²,    limit = MARGIN · noise / jitter.

Below the limit this is zero, and so is its gradient.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from candid.engines.rows import Rows
from candid.kernels import Kernel
from candid.likelihoods import NOISE_FLOOR, Gaussian
from candid.priors import HyperPrior

__all__ = ["JITTER", "Resolvable"]

#: Share of the kernel's diagonal at which factorisations start.
JITTER = {torch.float32: 1e-6, torch.float64: 1e-8}
# The variance that jitter adds is at most this share of the noise.
MARGIN = 0.1
# The diagonal of kernels that are not stationary is an average over so many rows.
SOME_ROWS = 100


class Resolvable(HyperPrior):
    """A prior, and what latent functions pay that are too large for the digits of a model.

    Parameters
    ----------
    prior : HyperPrior or None
    kernel : Kernel
    likelihood : Gaussian
    rows : Rows
    jitter : float
        That of the model, whose start may be fitted in another precision.
    """

    def __init__(
        self, prior: HyperPrior | None, kernel: Kernel, likelihood: Gaussian, rows: Rows, jitter: float
    ) -> None:
        terms, places = ([], []) if prior is None else (prior.terms, prior.places)
        super().__init__(terms, places)
        # Not as modules: these parts belong to others.
        self._parts, self._total, self._jitter = (kernel, likelihood), rows.total, jitter
        self._some = rows.x[:: -(-len(rows) // SOME_ROWS)]
        # No noise is taken to be smaller than one that is learned can be, in units of the targets.
        self._least_noise = NOISE_FLOOR * rows.y.var(0, correction=0).clamp_min(1.0)

    def penalty(self) -> Tensor:
        known = super().penalty() if self.terms or self.places else torch.zeros(()).to(self._some)
        variance = self._parts[0].diagonal(self._some).mean(-1)
        # Of a kernel that is fixed, the noise would have to pay.
        if not variance.requires_grad:
            return known
        excess = (variance * self._jitter / (MARGIN * self._noise())).log().clamp_min(0.0)
        return known + self._total * excess.square().sum()

    def _noise(self) -> Float[Tensor, " p"]:
        """That of a typical row."""
        likelihood = self._parts[1]
        variance = likelihood.at(None).variance if likelihood.known is None else likelihood.known
        return variance.median(0).values.maximum(self._least_noise)
