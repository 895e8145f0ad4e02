"""Two classes, with both links."""

from __future__ import annotations

import pytest
import torch
from scipy.special import log_expit, log_ndtr

from candid.likelihoods.bernoulli import Bernoulli, LogitRows, ProbitRows
from candid.marginal import Marginal
from candid.objectives import elbo, predictive

LINKS = {"logit": (LogitRows(), log_expit), "probit": (ProbitRows(), log_ndtr)}


def entry(value: float) -> torch.Tensor:
    return torch.tensor([[value]], dtype=torch.float64)


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("variance", [0.0, 1e-4, 1.0, 30.0, 256.0])
@pytest.mark.parametrize("mean", [-120.0, -8.0, 0.3, 25.0])
def test_both_averages_by_numerical_integration(link, mean, variance, integrals):
    rows, log_probability = LINKS[link]
    for y, sign in ((1.0, 1), (0.0, -1)):
        expected_log, log_expected = integrals(lambda f, sign=sign: log_probability(sign * f), mean, variance)
        values = entry(y), entry(mean), entry(variance)
        assert rows.expected_log_density(*values).item() == pytest.approx(expected_log, rel=1e-7, abs=1e-4)
        assert rows.log_expected_density(*values).item() == pytest.approx(log_expected, rel=1e-7, abs=1e-6)


@pytest.mark.parametrize("link", LINKS)
def test_probabilities_of_both_classes_sum_to_one(link, draw):
    rows, mean, variance = LINKS[link][0], 5 * draw(40, 2), 20 * draw(40, 2).square()
    logs = [rows.log_expected_density(torch.full_like(mean, y), mean, variance) for y in (0.0, 1.0)]
    torch.testing.assert_close(torch.stack(logs).exp().sum(0), torch.ones_like(mean), rtol=0, atol=1e-7)


@pytest.mark.parametrize("link", LINKS)
def test_jensen(link, draw):
    rows, y = LINKS[link][0], (draw(50, 1) > 0).double()
    mean, variance = 3 * draw(50, 1), draw(50, 1).square()
    assert (rows.expected_log_density(y, mean, variance) < rows.log_expected_density(y, mean, variance)).all()


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("name", ["expected_log_density", "log_expected_density"])
def test_gradients(link, name, draw):
    y, mean = torch.tensor([[0.0], [1.0], [1.0]], dtype=torch.float64), (4 * draw(3, 1)).requires_grad_()
    variance = torch.tensor([[0.05], [2.0], [60.0]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda m, v: getattr(LINKS[link][0], name)(y, m, v), (mean, variance), atol=1e-6)


@pytest.mark.parametrize("link", LINKS)
def test_single_precision_is_finite_everywhere(link):
    mean = torch.tensor([-1e3, -30.0, 0.0, 30.0, 1e3]).repeat(4, 1).requires_grad_()
    variance = torch.tensor([0.0, 1e-8, 1.0, 1e3]).unsqueeze(1).requires_grad_()
    for name in ("expected_log_density", "log_expected_density"):
        value = getattr(Bernoulli(link).at(), name)(torch.ones(4, 5), mean, variance)
        gradients = torch.autograd.grad(value.sum(), (mean, variance))
        assert value.dtype == torch.float32
        assert all(bool(part.isfinite().all()) for part in (value, *gradients))


def test_rows_of_chains_and_sites(draw):
    """Leading axes are those of the marginal; y has rows and outputs only."""
    y, mean, variance = (draw(5, 2) > 0).double(), draw(3, 4, 5, 2), draw(3, 1, 5, 2).square()
    for rows, _ in LINKS.values():
        for name in ("expected_log_density", "log_expected_density"):
            together = getattr(rows, name)(y, mean, variance)
            assert together.shape == (3, 4, 5, 2)
            alone = getattr(rows, name)(y, mean[1, 2], variance[1, 0])
            torch.testing.assert_close(together[1, 2], alone, rtol=1e-12, atol=1e-12)


def test_objectives_accept_it(draw):
    marginal = Marginal(draw(6, 1), draw(6, 1).square(), draw(6, 1).square())
    y, rows = (draw(6, 1) > 0).double(), Bernoulli().at(torch.arange(6))
    assert elbo(marginal, rows, y).shape == (6,)
    assert (elbo(marginal, rows, y) < predictive(marginal, rows, y)).all()


def test_links():
    assert isinstance(Bernoulli().at(None), LogitRows)
    assert isinstance(Bernoulli("probit").subset(torch.tensor([0])).at(None), ProbitRows)
    assert not list(Bernoulli().parameters())
    with pytest.raises(ValueError, match="logit, probit"):
        Bernoulli("cauchit")  # type: ignore[arg-type]
