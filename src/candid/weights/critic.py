"""A critic: it learns the logarithm of how much more likely a draw is under one distribution than under another.

A classifier that tells draws of q from draws of r, with the probability σ(t) that a draw is one of q, is at its best
where t = log q/r: the maximum of E_q log σ(t) + E_r log(1 − σ(t)) over all functions.

References
----------
H. Yu, Y. Chen, Z. Dai, B. K. H. Low, P. Jaillet, Implicit posterior variational inference for deep Gaussian processes
(2019); L. Mescheder, S. Nowozin, A. Geiger, Adversarial variational Bayes (2017).
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import softplus

from candid.weights.point_network import PointNetwork

__all__ = ["Critic", "classification_loss"]

# Units of each layer of its networks.
WIDTH = 16


class Critic(nn.Module):
    """t, of the values at all inducing points of a layer together.

    It sees each value (and its square, of which a ratio of normal densities is a linear function) with the place of its
    point, through a network that all points of a GP share; what comes out is added up over the points. The log-ratio is
    a linear function of these sums, in which each value counts by itself, plus a network's, which sees what they have
    to do with each other. It starts from zero everywhere.

    Parameters
    ----------
    n_features : int
        Of inducing points.
    n_gps : int
    seed : int
        Of the initial weights.
    """

    def __init__(self, n_features: int, n_gps: int, seed: int) -> None:
        super().__init__()
        self.of_points = PointNetwork(2 + n_features, (WIDTH, WIDTH), n_gps, seed)
        self.of_sums = PointNetwork(n_gps * WIDTH, (WIDTH, 1), 1, seed + 1, silent=True)
        self.slope = nn.Parameter(torch.zeros(n_gps * WIDTH))

    def forward(
        self, values: Float[Tensor, "s p m"], points: Float[Tensor, "p m d"], frozen: bool = False
    ) -> Float[Tensor, " s"]:
        """t of each draw; no gradient reaches the weights of a ``frozen`` critic."""
        n_draws, _, n_points = values.shape
        by_gp = values.movedim(1, 0).unsqueeze(-1)
        places = points.unsqueeze(1).expand(-1, n_draws, -1, -1)
        seen = torch.cat([by_gp, by_gp.square(), places], -1).flatten(1, 2)
        sums = self.of_points(seen, frozen).unflatten(1, (n_draws, n_points)).sum(2).movedim(0, 1).flatten(1)
        together = self.of_sums((sums / n_points**0.5).unsqueeze(0), frozen).flatten()
        return together + sums @ (self.slope.detach() if frozen else self.slope)


def classification_loss(of_ours: Float[Tensor, " s"], of_others: Float[Tensor, " t"]) -> Tensor:
    """What a critic minimises, from its t at draws of q and at draws of r."""
    # −E_q log σ(t) − E_r log(1 − σ(t))
    return softplus(-of_ours).mean() + softplus(of_others).mean()
