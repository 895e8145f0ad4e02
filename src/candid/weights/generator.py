"""Networks that make noise of an unknown distribution from noise of a known one."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from candid.weights.point_network import PointNetwork

__all__ = ["Generator"]

# Units of each layer of the networks.
WIDTH = 16


class Generator(nn.Module):
    """Where noise is, and how wide: both from networks that all points of a GP share, and which start as silent.

    Parameters
    ----------
    n_features : int
        Of inducing points.
    n_gps : int
    n_shared : int
        How many random numbers the points share.
    with_width : bool
        Whether the width is learned; otherwise it is one.
    seed : int
        Of the initial weights.
    """

    def __init__(self, n_features: int, n_gps: int, n_shared: int, with_width: bool, seed: int) -> None:
        super().__init__()
        self.shift = PointNetwork(1 + n_shared + n_features, (WIDTH, WIDTH, 1), n_gps, seed, silent=True)
        self.log_width = PointNetwork(n_features, (WIDTH, 1), n_gps, seed + 1, silent=True) if with_width else None

    def forward(
        self, own: Float[Tensor, "s p m"], shared: Float[Tensor, "s shared"], points: Float[Tensor, "p m d"]
    ) -> Float[Tensor, "s p m"]:
        """δ(ζ, Z), of numbers ζ of each point's own and of numbers that all points share."""
        n_draws, n_gps, n_points = own.shape
        seen = torch.cat(
            [
                own.movedim(1, 0).unsqueeze(-1),
                shared[:, None, :].expand(n_gps, n_draws, n_points, -1),
                points.unsqueeze(1).expand(-1, n_draws, -1, -1),
            ],
            -1,
        )
        return self.shift(seen.flatten(1, 2)).squeeze(-1).unflatten(1, (n_draws, n_points)).movedim(0, 1)

    def width(self, points: Float[Tensor, "p m d"]) -> Float[Tensor, "p m"]:
        """s(Z)."""
        return torch.ones_like(points[..., 0]) if self.log_width is None else self.log_width(points).squeeze(-1).exp()
