"""Leave-one-out classification with Pólya–Gamma variables, by the published formulas on a few rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.special import expit

from candid.engines import Checkpoint, Plan, Problem, Rows, train
from candid.likelihoods.polya_gamma import log_density
from fragile import FragileCheckpoint, Interrupted
from small_models import label_problem

N_CLASSES = {"two classes": 2, "three classes": 3}


def some_rows(n_rows: int = 6, n_classes: int = 2, weighted: bool = False) -> Rows:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n_rows, 2, dtype=torch.float64, generator=generator)
    y = torch.arange(n_rows).double().unsqueeze(-1) % n_classes
    weight = torch.arange(1, n_rows + 1).double() if weighted else torch.ones(n_rows).double()
    return Rows(x, y, weight)


def by_the_formulas(problem: Problem, rows: Rows) -> float:
    """−(1/N) Σ_n {log ∫ σ(y_n f) N(f; μ_n, σ_n²) df − KL_n} of one latent function, for its present samples of ω.

    With a prior mean of zero, Ω = diag(ω) and labels ±1,

        μ_n = ½ kᵀ(K + Ω⁻¹)⁻¹Ω⁻¹y        σ_n² = k(x, x) − kᵀ(K + Ω⁻¹)⁻¹k,

    where a row of weight w has noise of variance 1/(wω).
    """
    terms, divergences = latent_terms(problem, rows, 0)
    weight = rows.weight.numpy()
    return float(weight @ (divergences - np.log(terms)) / weight.sum())


def latent_terms(problem: Problem, rows: Rows, output: int) -> tuple[np.ndarray, np.ndarray]:
    """The predictive probability of the label of each row given all others, and KL(q(ω)‖PG(1, 0)), by integration."""
    sites, K = problem.family.sites, problem.family.kernel(rows.x)[output].detach().numpy()
    signs = 2 * sites.targets[:, output].numpy() - 1
    omega = 1 / sites(torch.arange(len(rows)))[1][:, output].detach().numpy()
    weight = rows.weight.numpy()
    probabilities, divergences = [], []
    for n, sign in enumerate(signs):
        others = np.arange(len(rows)) != n
        C = K[np.ix_(others, others)] + np.diag(1 / (weight * omega)[others])
        mean = 0.5 * K[others, n] @ np.linalg.solve(C, signs[others] / omega[others])
        variance = K[n, n] - K[others, n] @ np.linalg.solve(C, K[others, n])
        probabilities.append(_logistic_average(sign * mean, variance))
        divergences.append(_divergence(sites.location[n, output].item(), sites.log_scale[n, output].exp().item()))
    return np.array(probabilities), np.array(divergences)


def _logistic_average(mean: float, variance: float) -> float:
    deviation = np.sqrt(variance)

    def integrand(z):
        return expit(mean + deviation * z) * np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)

    return quad(integrand, -12, 12, epsabs=1e-13)[0]


def _divergence(location: float, scale: float) -> float:
    """∫ q(ω) log q(ω)/p(ω) dω over log ω = location + scale·z."""

    def integrand(z):
        log_omega = location + scale * z
        log_q = -0.5 * z**2 - 0.5 * np.log(2 * np.pi) - np.log(scale) - log_omega
        log_p = float(log_density(torch.tensor(np.exp(log_omega), dtype=torch.float64)))
        return np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi) * (log_q - log_p)

    return quad(integrand, -10, 10, epsabs=1e-12, limit=200)[0]


@pytest.mark.parametrize("weighted", [False, True])
def test_two_classes(weighted):
    rows = some_rows(weighted=weighted)
    problem = label_problem(rows)
    for step in (0, 5):
        problem.family.refresh(step)
        assert float(problem.loss(rows.whole()).detach()) == pytest.approx(by_the_formulas(problem, rows), abs=1e-7)


def test_several_classes():
    """Probabilities of one against all others are normalised, and divergences are added up."""
    rows = some_rows(7, n_classes=3)
    problem = label_problem(rows, n_classes=3)
    positive, divergence = [], 0.0
    for output in range(3):
        of_label, divergences = latent_terms(problem, rows, output)
        chosen = rows.y.squeeze(-1).numpy() == output
        positive.append(np.where(chosen, of_label, 1 - of_label))
        divergence += divergences.mean()
    positive = np.array(positive)
    chosen = (positive / positive.sum(0))[rows.y.squeeze(-1).long().numpy(), np.arange(7)]
    assert float(problem.loss(rows.whole()).detach()) == pytest.approx(divergence - np.log(chosen).mean(), abs=1e-7)


@pytest.mark.parametrize("n_classes", N_CLASSES.values(), ids=N_CLASSES)
def test_batches_are_unbiased(n_classes):
    """Batches of equal size that make up the table have its loss on average."""
    rows = some_rows(8, n_classes)
    problem = label_problem(rows, n_classes, k=3)
    parts = [problem.loss(rows.batch(torch.tensor(index))) for index in ([0, 5], [1, 7], [2, 3], [4, 6])]
    torch.testing.assert_close(torch.stack(parts).mean(), problem.loss(rows.whole()))


@pytest.mark.parametrize("n_classes", N_CLASSES.values(), ids=N_CLASSES)
def test_gradients(n_classes):
    """Those of the auxiliary variables too, through the samples."""
    rows = some_rows(7, n_classes)
    problem = label_problem(rows, n_classes, k=4)
    batch = rows.batch(torch.tensor([0, 4, 6]))
    problem.loss(batch).backward()
    for parameter in problem.parameters():
        gradient = parameter.grad.to_dense()
        for place in np.ndindex(*parameter.shape):
            assert gradient[place].item() == pytest.approx(_slope(problem, batch, parameter, place), abs=2e-8)


def _slope(problem, batch, parameter, place, step=1e-5) -> float:
    values = []
    for side in (1, -1):
        with torch.no_grad():
            parameter[place] += side * step
        values.append(problem.loss(batch).item())
        with torch.no_grad():
            parameter[place] -= side * step
    return (values[0] - values[1]) / (2 * step)


def test_an_interrupted_run_goes_on_bit_for_bit(tmp_path):
    rows = some_rows(12)
    plan = Plan({"sites": "rows", "rest": "adam"}, 4, batch_size=5, rates={"sites": 0.1}, seed=3, with_start=True)

    def run(checkpoint=None):
        problem = label_problem(rows, k=4)
        history = train(problem, rows, plan, checkpoint=checkpoint)
        return problem.state_dict(), [record["loss"] for record in history]

    expected, losses = run()
    assert losses[-1] != losses[0]
    for last in (1, 4, 9):
        with pytest.raises(Interrupted):
            run(FragileCheckpoint(tmp_path / str(last), last))
        found, again = run(Checkpoint(tmp_path / str(last)))
        assert again == losses
        for name, tensor in expected.items():
            torch.testing.assert_close(found[name], tensor, rtol=0, atol=0)


def test_drafts_of_predictions_condition_on_settled_values():
    rows = some_rows(10)
    problem = label_problem(rows, k=9)
    x = torch.tensor([[0.3, -0.4], [1.0, 1.0]]).double()
    family = problem.family
    near = ((rows.x / family.rows.metric).unsqueeze(0) - (x / family.rows.metric).unsqueeze(1)).square().sum(-1)
    marginal = family.draft_predictor().marginal(x)
    for row in range(2):
        others = near[row].argsort()[:9]
        variance = family.sites.settled(others)[1].squeeze(-1).diag()
        C = family.kernel(rows.x[others])[0] + variance
        k = family.kernel(rows.x[others], x[row : row + 1])[0, :, 0]
        targets = (rows.y[others].squeeze(-1) - 0.5) * variance.diagonal()
        torch.testing.assert_close(marginal.mean[row, 0], k @ torch.linalg.solve(C, targets))
        torch.testing.assert_close(
            marginal.variance[row, 0], family.kernel(x[row : row + 1])[0, 0, 0] - k @ torch.linalg.solve(C, k)
        )
