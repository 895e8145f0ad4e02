"""Two layers of GPs in GPyTorch, as its documentation builds them. Import this only where GPyTorch is installed."""

from __future__ import annotations

from collections.abc import Callable

import gpytorch
import torch
from gpytorch.models.deep_gps import DeepGP, DeepGPLayer
from gpytorch.models.deep_gps.dspp import DSPP, DSPPLayer
from torch import Tensor, nn

from candid.bench.case import Case, Sample
from candid.bench.gpytorch_side import DISTRIBUTIONS, make_likelihood

__all__ = ["deep_loss"]


def deep_loss(case: Case, sample: Sample) -> tuple[Callable[[], Tensor], list[nn.Parameter]]:
    """What is minimised, and the parameters that it depends on."""
    sampled = case.row.parameters.get("propagation") == "sampling"
    model, likelihood = (_Sampled if sampled else _SigmaPoints)(case, sample), make_likelihood()
    likelihood.initialize(noise=case.noise)
    options = {"num_data": sample.total, "beta": case.beta}
    if sampled:
        objective = gpytorch.mlls.DeepApproximateMLL(gpytorch.mlls.VariationalELBO(likelihood, model, **options))
    else:
        objective = gpytorch.mlls.DeepPredictiveLogLikelihood(likelihood, model, **options)

    def loss() -> Tensor:
        with gpytorch.settings.num_likelihood_samples(case.n_sites):
            return -objective(model(sample.x), sample.y)  # pyright: ignore[reportOperatorIssue]

    # The sites of a layer are those that lead to it, and nothing leads to the first one.
    unused = {"hidden.quad_sites"}
    parameters = [parameter for name, parameter in model.named_parameters() if name not in unused]
    return loss, [*parameters, *likelihood.parameters()]


def _make_layer(kind: type, case: Case, points: Tensor, n_gps: int | None, **more: int) -> nn.Module:
    """A layer of hidden GPs, or without their number the last one."""
    batch, n_features = torch.Size([] if n_gps is None else [n_gps]), points.shape[-1]

    class Layer(kind):
        def __init__(self) -> None:
            distribution = DISTRIBUTIONS[str(case.row.made_of.weights)](points.shape[-2], batch_shape=batch)
            start = points.expand(*batch, *points.shape).clone()
            strategy = gpytorch.variational.VariationalStrategy(self, start, distribution)
            super().__init__(strategy, n_features, n_gps, **more)
            linear = gpytorch.means.LinearMean(n_features, batch_shape=batch)
            self.mean_module = gpytorch.means.ConstantMean() if n_gps is None else linear
            base = gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=n_features, batch_shape=batch)
            self.covar_module = gpytorch.kernels.ScaleKernel(base, batch_shape=batch)
            self.covar_module.initialize(outputscale=case.amplitude)
            base.initialize(lengthscale=case.lengthscale)

        def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
            mean, covariance = self.mean_module(x), self.covar_module(x)
            return gpytorch.distributions.MultivariateNormal(mean, covariance)  # pyright: ignore[reportArgumentType]

    return Layer()


@torch.no_grad()
def _set_slopes(layer: nn.Module, slopes: Tensor) -> None:
    layer.mean_module.weights.copy_(slopes.T.unsqueeze(-1))  # pyright: ignore
    layer.mean_module.bias.zero_()  # pyright: ignore


class _SigmaPoints(DSPP):
    """A deep sigma point process."""

    def __init__(self, case: Case, sample: Sample) -> None:
        super().__init__(case.n_sites)
        sites = {"num_quad_sites": case.n_sites}
        self.hidden = _make_layer(DSPPLayer, case, sample.points, case.hidden_width, **sites)
        self.last = _make_layer(DSPPLayer, case, sample.hidden_points, None, **sites)
        _set_slopes(self.hidden, sample.slopes)
        with torch.no_grad():
            self.last.quad_sites.copy_(sample.sites)  # pyright: ignore
            self.raw_quad_weights.zero_()  # pyright: ignore[reportCallIssue]

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        return self.last(self.hidden(x))


class _Sampled(DeepGP):
    """A doubly stochastic deep GP."""

    def __init__(self, case: Case, sample: Sample) -> None:
        super().__init__()
        self.hidden = _make_layer(DeepGPLayer, case, sample.points, case.hidden_width)
        self.last = _make_layer(DeepGPLayer, case, sample.hidden_points, None)
        _set_slopes(self.hidden, sample.slopes)

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        return self.last(self.hidden(x))
