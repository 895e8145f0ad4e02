"""Dropout as a Bayesian approximation: a network whose thinned copies are samples of functions.

References
----------
Y. Gal, Z. Ghahramani, Dropout as a Bayesian approximation: representing model uncertainty in deep learning (2016).
"""

from __future__ import annotations

import copy

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from candid.families.base import Family
from candid.families.dropout_predictor import DropoutPredictor
from candid.families.headed import HeadedNetwork
from candid.kernels import Features
from candid.marginal import Batch, Evaluation, Marginal

__all__ = ["Dropout"]

# What random numbers are for; each purpose has its own.
PREDICTION, STANDING, TRAINING = range(3)


class Dropout(Family):
    """A network with one linear head for each output, in which every hidden unit is left out with a probability.

    Inputs are never left out. Units that stay count 1/(1 − p) times as much.

    - In training each row of a batch has a mask of its own, as is usual: were they to share one, the gradient would be
      that of a single thinned network, and noisier. Masks follow from the seed and the step.
    - Without gradients, where training only asks how it stands, masks are the same at every step.
    - For prediction there are ``n_passes`` masks that all rows share. So each pass is one thinned network, a function,
      and the prediction a mixture of so many functions.

    Parameters
    ----------
    network : Features
        Built for the inputs; see :class:`~candid.families.headed.HeadedNetwork` for which of its units are hidden ones.
    n_outputs : int
    dropout : float, default=0.1
        p.
    n_passes : int, default=50
        Without dropout all passes would be the same, and there is one.
    seed : int, default=0
        Of the masks.
    """

    jitter: Tensor

    def __init__(
        self, network: Features, n_outputs: int, dropout: float = 0.1, n_passes: int = 50, seed: int = 0
    ) -> None:
        super().__init__()
        if not 0 <= dropout < 1:
            raise ValueError(f"the probability to leave out a unit is at least 0 and below 1, got {dropout}")
        self.network = HeadedNetwork(network, n_outputs)
        self.dropout, self.n_passes, self.seed = dropout, n_passes if dropout else 1, seed
        self.step = 0
        # Nothing is factorised.
        self.register_buffer("jitter", torch.zeros(n_outputs))

    def evaluate(self, batch: Batch) -> Evaluation:
        purpose = (TRAINING, self.step) if self.network.learning else (STANDING, 0)
        masks = self.masks(len(batch.x), *purpose).to(batch.x)
        (mean,) = self.network.passes(batch.x, masks.unsqueeze(0), batch.weight)
        nothing = torch.zeros_like(mean)
        return Evaluation(Marginal(mean, nothing, nothing), {})

    def refresh(self, step: int) -> None:
        self.step = step

    def masks(self, number: int, purpose: int, step: int = 0) -> Float[Tensor, "n units"]:
        """Independent masks, a pure function of their seed, their purpose and the step."""
        shape = (number, sum(self.network.hidden))
        if not self.dropout:
            return torch.ones(shape)
        (seed,) = np.random.SeedSequence((self.seed, purpose, step)).generate_state(1)
        draws = torch.rand(shape, generator=torch.Generator().manual_seed(int(seed)))
        # 1/(1 − p) with probability 1 − p, else 0
        return draws.ge_(self.dropout).div_(1 - self.dropout)

    @torch.no_grad()
    def predictor(self) -> DropoutPredictor:
        masks = self.masks(self.n_passes, PREDICTION).to(self.jitter.device, torch.float64)
        return DropoutPredictor(copy.deepcopy(self.network).double(), masks)
