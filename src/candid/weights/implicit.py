"""q(v) as what networks make of noise, without a density that could be written down.

Noise ε, ζ ~ N(0, I) becomes e = s(Z)ε + δ(ζ, Z), in networks that all inducing points of a GP share, and then

    v = m + R e.

Given ζ, v is normal: so what layers need is known for each draw of ζ, with nothing to draw of ε. Of the divergence
KL(q ‖ p) = E log q(v)/p(v) from the prior everything is known but the log-ratio t of the densities of e and of ε, which
a critic learns:

    KL = E[t(e)] + E[½‖v‖² − ½‖e‖²] − log det R
       = KL(N(m, R Rᵀ) ‖ N(0, I)) + E[t(e) + ½‖m + R e‖² − ½‖m + R ε‖² − ½‖e‖² + ½‖ε‖²].

With m = 0 and R = I, that is the published method, in which the critic tells q from the prior: KL = E[t(v)]. But
posterior and prior are so far apart that classifiers tell them without fail, and learn no ratio. A normal part m, R
that is learned besides leaves to networks what is not normal. Then e is standardised, by averages over past steps: so
only R decides how wide q is, by a penalty that no critic has to learn first.

References
----------
H. Yu, Y. Chen, Z. Dai, B. K. H. Low, P. Jaillet, Implicit posterior variational inference for deep Gaussian processes
(2019); L. Mescheder, S. Nowozin, A. Geiger, Adversarial variational Bayes (2017); M. Yin, M. Zhou, Semi-implicit
variational inference (2018).
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from candid.linalg import project
from candid.weights.base import Weights
from candid.weights.critic import Critic, classification_loss
from candid.weights.generator import Generator
from candid.weights.normal import Full

__all__ = ["Implicit"]

# How many numbers ζ all points share, where nothing else makes values depend on each other.
N_SHARED = 4
# Draws that a penalty is an average of, and of each of the two distributions that the critic compares.
N_AVERAGED = 32
# Weight of the present step in averages over steps.
NOVELTY = 0.1
# What random numbers are for; each purpose has its own.
STANDING, TRAINING, PENALTY, OBSERVED, CONTRASTED, OTHERS, SETTLED = range(7)


class Implicit(Weights):
    """q(v) of all GPs of a layer together.

    Random numbers follow from the seed and the step, and come in pairs of opposite signs. Without gradients, where
    training only asks how it stands, they are the same at every step.

    Parameters
    ----------
    normal : Full
        m and R of each GP.
    points : Tensor
        The inducing points of the layer, (GP, M, feature). They belong to the layer; the networks see them as they are.
    n_draws : int
        Of ζ, in a step of training.
    n_settled : int
        The same in predictions.
    above : bool, default=False
        Whether the layer is above others: its rows then are those of each draw, one block after the other. Otherwise
        every draw meets every row.
    learned : bool, default=True
        Whether m and R are learned, s = 1, and e is standardised and of independent entries. Otherwise m and R stay as
        they are, s is learned, and what values have to do with each other is left to the networks.
    seed : int, default=0
    """

    centre: Tensor  # mean and variance of δ(ζ, Z) over the draws of past steps
    variance: Tensor

    def __init__(
        self,
        normal: Full,
        points: Float[Tensor, "p m d"],
        n_draws: int,
        n_settled: int,
        above: bool = False,
        learned: bool = True,
        seed: int = 0,
    ) -> None:
        super().__init__()
        n_gps, n_points, n_features = points.shape
        self.normal = normal.requires_grad_(learned)
        self.n_draws, self.n_settled, self.above, self.learned = n_draws, n_settled, above, learned
        self.seed, self.step = seed, 0
        first, second = np.random.SeedSequence(seed).generate_state(2).tolist()
        self.n_shared = 0 if learned else N_SHARED
        self.generator = Generator(n_features, n_gps, self.n_shared, not learned, first)
        self.critic = Critic(n_features, n_gps, second)
        self.register_buffer("centre", torch.zeros(n_gps, n_points))
        self.register_buffer("variance", torch.zeros(n_gps, n_points))
        # In a tuple, as they are not parameters of these weights.
        self._seen = (points,)

    @property
    def mean(self) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        """m, which is the mean of the normal part only."""
        return self.normal.mean

    def root(self) -> Float[Tensor, "p m m"]:
        """R diag(s), the root of the covariance for a given ζ."""
        return self.normal.root() * self._width().unsqueeze(-2)

    def assign(self, mean: Float[Tensor, "p m"], precision: Float[Tensor, "p m m"]) -> None:
        self.normal.assign(mean, precision)

    def refresh(self, step: int) -> None:
        self.step = step

    def moments(
        self, features: Float[Tensor, "p m n"]
    ) -> tuple[Float[Tensor, "*s p n"], Float[Tensor, "*s p n"], Float[Tensor, "*s p n"]]:
        """Means aᵀE[v|ζ] of each draw of ζ, explained variance and spread, which are those of all draws."""
        purpose = (TRAINING, self.step) if torch.is_grad_enabled() else (STANDING, 0)
        values = self._mapped(self._shifts(self.n_draws, *purpose))
        _, explained, spread = project(features, torch.zeros_like(self.mean), self.root())
        if self.above:
            blocks = features.unflatten(-1, (self.n_draws, -1)).movedim(-2, 0)
            latent = (values.unsqueeze(-2) @ blocks).squeeze(-2).movedim(0, -2).flatten(-2)
        else:
            latent = (values.movedim(0, -2) @ features).movedim(-2, 0)
        return latent, explained.expand_as(latent), spread.expand_as(latent)

    def penalty(self) -> Tensor:
        """KL(q ‖ N(0, I)) of all GPs, in which log-ratios that have no closed form are the critic's."""
        purpose = (PENALTY, self.step) if torch.is_grad_enabled() else (STANDING, 0)
        plain, noise = self.noise(N_AVERAGED, *purpose)
        # ½‖m + R e‖² − ½‖m + R ε‖² − ½‖e‖² + ½‖ε‖²
        change = self._mapped(noise).square() - self._mapped(plain).square() - noise.square() + plain.square()
        log_ratio = self.critic(noise, self._points(), frozen=True)
        return self.normal.penalty() + (0.5 * change.sum((-2, -1)) + log_ratio).mean()

    def contrast(self) -> Tensor:
        """The critic's own loss, from draws of e and of ε; no gradient reaches anything else."""
        with torch.no_grad():
            _, ours = self.noise(N_AVERAGED, CONTRASTED, self.step)
            others, _ = self._numbers(N_AVERAGED, OTHERS, self.step)
        return classification_loss(*self.critic(torch.cat([ours, others]), self._points()).chunk(2))

    @torch.no_grad()
    def observe(self) -> None:
        """Let the averages that standardise e follow the generator."""
        if self.learned:
            own, shared = self._numbers(N_AVERAGED, OBSERVED, self.step)
            shifts = self.generator(own, shared, self._points())
            self.centre.lerp_(shifts.mean(0), NOVELTY)
            self.variance.lerp_((shifts - self.centre).square().mean(0), NOVELTY)

    @torch.no_grad()
    def settled(self) -> Full:
        """The normal distributions, one for each draw of ζ, that predictions use; they share nothing with these."""
        values = self._mapped(self._shifts(self.n_settled, SETTLED, 0))
        weights = Full(values.shape[-1], tuple(values.shape[1:-1])).to(values)
        weights.mean = nn.Parameter(values)
        weights.lower.copy_(self.root())
        return weights

    def noise(self, n_draws: int, *purpose: int) -> tuple[Float[Tensor, "s p m"], Float[Tensor, "s p m"]]:
        """ε and e, of random numbers for a purpose."""
        plain, _ = self._numbers(n_draws, *purpose, 1)
        return plain, self._width() * plain + self._shifts(n_draws, *purpose)

    def _shifts(self, n_draws: int, *purpose: int) -> Float[Tensor, "s p m"]:
        """What e is on average, for each draw of ζ."""
        shifts = self.generator(*self._numbers(n_draws, *purpose, 0), self._points())
        return (shifts - self.centre) / (1 + self.variance).sqrt()

    def _width(self) -> Float[Tensor, "p m"]:
        """Standard deviation of e for a given ζ."""
        return self.generator.width(self._points()) / (1 + self.variance).sqrt()

    def _mapped(self, noise: Float[Tensor, "s p m"]) -> Float[Tensor, "s p m"]:
        """m + R e."""
        # All draws in one product, for each GP
        return self.mean + (self.normal.root() @ noise.movedim(0, -1)).movedim(-1, 0)

    def _numbers(self, n_draws: int, *purpose: int) -> tuple[Float[Tensor, "s p m"], Float[Tensor, "s shared"]]:
        """Normal numbers of each point, and such that all points share; one half of the draws mirrors the other."""
        (seed,) = np.random.SeedSequence((self.seed, *purpose)).generate_state(1)
        random, mean = torch.Generator().manual_seed(int(seed)), self.mean
        half = torch.randn((n_draws + 1) // 2, mean.numel() + self.n_shared, generator=random)
        own, shared = torch.cat([half, -half])[:n_draws].to(mean).split([mean.numel(), self.n_shared], -1)
        return own.unflatten(-1, tuple(mean.shape)), shared

    def _points(self) -> Float[Tensor, "p m d"]:
        return self._seen[0].detach()
