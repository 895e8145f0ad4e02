"""What is timed: one method at one size, on made-up rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from candid.methods import Method, find_method

__all__ = ["Case", "Sample"]


@dataclass(frozen=True)
class Case:
    """A method with M inducing points on batches of B rows with D features.

    Deep methods have one hidden layer of W GPs, taken at S sites, and decoupled conditionals perhaps the penalty Ω. The
    rest is where the hyper-parameters of every contender start.
    """

    method: str
    n_inducing: int
    n_features: int
    batch_size: int = 1000
    amplitude: float = 1.0
    noise: float = 0.1
    hidden_width: int = 5
    n_sites: int = 10
    omega_weight: float = 0.0

    @property
    def row(self) -> Method:
        """The method's row in the table."""
        return find_method(self.method)

    @property
    def lengthscale(self) -> float:
        """√D: rows of standard normal features are then neither far from each other nor alike."""
        return math.sqrt(self.n_features)

    @property
    def beta(self) -> float:
        """Weight of the KL penalty."""
        return float(self.row.candid.get("beta", 1.0))

    @property
    def decoupled(self) -> bool:
        """Whether the mean has inducing points of its own."""
        return self.row.made_of.family == "decoupled"

    @property
    def deep(self) -> bool:
        """Whether there are GPs upon GPs."""
        return self.row.made_of.family == "layers"

    def step_flops(self) -> float:
        """Operations of the matrix products and triangular solves of one training step; a triangle counts half.

        A = L⁻¹K_zx, half of ĀAᵀ and L⁻ᵀĀ need M²B each; a full q(u) adds L_qᵀA, L_qT and half of A Tᵀ, M²B each. On top
        come the Cholesky factor and a symmetric L⁻ᵀ · L⁻¹, (⅓ + 1⅓) M³, and the distances with their gradients,
        6 MBD + 4 M²D. Inducing points of the mean alone need no features of the batch: c = L⁻ᵀm. A hidden layer has
        all this W times, and the layer on top of it SB rows with W features.
        """
        if self.deep:
            below = self.hidden_width * self._layer_flops(self.batch_size, self.n_features)
            return below + self._layer_flops(self.n_sites * self.batch_size, self.hidden_width)
        return self._layer_flops(self.batch_size, self.n_features)

    def _layer_flops(self, b: int, d: int) -> float:
        m = self.n_inducing
        products = 6 if self.row.made_of.weights == "full" else 3
        points = (5 / 3) * m**3 + 6 * m * b * d + 4 * m * m * d
        return products * m * m * b + (2 if self.decoupled else 1) * points

    def predict_flops(self, n_rows: int) -> float:
        """Operations of predicting mean and variance: distances, and one product with a triangle."""
        m, d = self.n_inducing, self.n_features
        return m * m * n_rows + (2 if self.decoupled else 1) * 2 * m * n_rows * d


@dataclass(frozen=True)
class Sample:
    """Rows and inducing points that all contenders share, and of deep methods what a hidden layer adds to these."""

    x: Tensor
    y: Tensor
    points: Tensor
    new_x: Tensor
    hidden_points: Tensor  # M×W
    slopes: Tensor  # of linear mean functions, D×W
    sites: Tensor  # S×W
    total: int = 15_000  # rows of the table that the batch is said to be taken from

    @classmethod
    def draw(cls, case: Case, n_new: int, seed: int = 0) -> Sample:
        generator = torch.Generator().manual_seed(seed)
        sizes = (case.batch_size, case.n_inducing, n_new)
        x, points, new_x = (torch.randn(size, case.n_features, generator=generator) for size in sizes)
        y = torch.sin(2 * x[:, 0]) + 0.1 * torch.randn(case.batch_size, generator=generator)
        width = case.hidden_width
        hidden_points, slopes, sites = (
            torch.randn(size, width, generator=generator) for size in (case.n_inducing, case.n_features, case.n_sites)
        )
        return cls(x, y, points, new_x, hidden_points, slopes / math.sqrt(case.n_features), sites)
