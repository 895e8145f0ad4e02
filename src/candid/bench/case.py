"""What is measured: one method at one size, on made-up rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from candid.methods import Method, find_method

__all__ = ["Case", "Sample", "default_cases"]

METHODS = ("svgp", "ppgpr-chol", "ppgpr-mf")
# Number of inducing points → number of features, as in published experiments.
SIZES, QUICK_SIZES = {100: 8, 300: 8, 1000: 26}, {100: 8, 300: 8}


@dataclass(frozen=True)
class Case:
    """A method with M inducing points on batches of B rows with D features.

    The rest is where the hyper-parameters of every contender start.
    """

    method: str
    n_inducing: int
    n_features: int
    batch_size: int = 1000
    amplitude: float = 1.0
    noise: float = 0.1

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

    def flops(self) -> float:
        """Operations of the matrix products and triangular solves of one training step; a triangle counts half.

        A = L⁻¹K_zx, ĀAᵀ and L⁻ᵀĀ need (1 + 2 + 1) M²B; a full q(u) adds L_qᵀA, L_qT and A Tᵀ, 2 M²B each. On top come
        the Cholesky factor and two solves, (⅓ + 2) M³, and the distances with their gradients, 6 MBD + 4 M²D.
        """
        m, b, d = self.n_inducing, self.batch_size, self.n_features
        products = 10 if self.row.made_of.weights == "full" else 4
        return products * m * m * b + (7 / 3) * m**3 + 6 * m * b * d + 4 * m * m * d


@dataclass(frozen=True)
class Sample:
    """Rows and inducing points that all contenders share."""

    x: Tensor
    y: Tensor
    points: Tensor
    new_x: Tensor
    total: int = 15_000  # rows of the table that the batch is said to be taken from

    @classmethod
    def draw(cls, case: Case, n_new: int, seed: int = 0) -> Sample:
        generator = torch.Generator().manual_seed(seed)
        sizes = (case.batch_size, case.n_inducing, n_new)
        x, points, new_x = (torch.randn(size, case.n_features, generator=generator) for size in sizes)
        y = torch.sin(2 * x[:, 0]) + 0.1 * torch.randn(case.batch_size, generator=generator)
        return cls(x, y, points, new_x)


def default_cases(quick: bool = False, batch_size: int = 1000) -> list[Case]:
    """Each method at each size; ``quick`` leaves the largest out."""
    sizes = QUICK_SIZES if quick else SIZES
    return [Case(method, m, d, batch_size) for m, d in sizes.items() for method in METHODS]
