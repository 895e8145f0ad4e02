"""GPs whose parameters are sampled, through the estimator."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
import torch
from scipy import stats

import candid
from candid import BayesianGPRegressor, ExactGPRegressor, make_gp
from candid.estimators import bayesian_start
from candid.estimators.chains import chains_for
from candid.estimators.diagnostics import diagnostics
from candid.kernels import RBF, Deep
from candid.priors import LogNormal

SHORT = {"n_chains": 1, "n_inducing": 8, "max_epochs": 10, "burn_in": 30, "n_samples": 6, "thin": 3, "random_state": 0}
TWO_CHAINS = {**SHORT, "n_chains": 2}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 2)) * [1.0, 20.0] + [0.0, 100.0]
    return X, 10 * np.sin(1.5 * X[:, 0]) + rng.normal(size=60) + 40


@pytest.fixture(scope="module")
def gp(table):
    """Everything is sampled, by two chains."""
    return BayesianGPRegressor(sample=("u", "theta", "z", "noise"), **TWO_CHAINS).fit(*table)


def test_predictions_are_mixtures_over_the_samples_of_all_chains(gp, table):
    X, y = table
    p = gp.predict_distribution(X)
    assert p.means.shape == (60, 12)
    mean, std = gp.predict(X, return_std=True)
    np.testing.assert_allclose(mean, p.mean)
    np.testing.assert_allclose(std, p.std)
    by_hand = stats.norm.pdf(y[:, None], p.means, np.hypot(p.latent_stds, p.noise_stds)).mean(1)
    np.testing.assert_allclose(p.log_prob(y), np.log(by_hand))
    _, covariance = gp.predict(X[:4], return_cov=True)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), std[:4])
    assert np.sqrt(np.mean((mean - y) ** 2)) < 2.5


def test_joint_draws_come_from_one_sample_each(gp, table):
    X, _ = table
    draws = gp.sample_y(X[:3], 4000, random_state=1)
    p = gp.predict_distribution(X[:3])
    assert (np.abs(draws.mean(1) - p.mean) < 5 * p.std / np.sqrt(4000)).all()
    np.testing.assert_allclose(draws.std(1), p.std, rtol=0.06)


def test_samples(gp, table):
    shapes = {name: draws.shape for name, draws in gp.samples_.items()}
    assert shapes == {
        "z": (2, 6, 1, 8, 2),
        "lengthscale": (2, 6, 1, 1, 2),
        "amplitude": (2, 6, 1),
        "constant": (2, 6, 1),
        "u": (2, 6, 1, 8),
        "noise": (2, 6, 1, 1),
    }
    assert all(len(np.unique(draws)) == draws.size for draws in gp.samples_.values())
    # In units of y, noise is a standard deviation.
    scale = table[1].std()
    assert gp.noise_ == pytest.approx(scale * np.sqrt(gp.samples_["noise"].mean()), rel=1e-5)
    lengthscale = gp.kernel_.base.lengthscale.value.detach().numpy().ravel() / table[0].std(0)
    middle = np.exp(np.log(gp.samples_["lengthscale"]).mean((0, 1))).ravel()
    np.testing.assert_allclose(lengthscale, middle, rtol=1e-4)


def test_samples_of_one_kind_have_names_of_their_own(table):
    gp = BayesianGPRegressor(kernel="rbf + matern32", **SHORT).fit(*table)
    assert {"lengthscale", "amplitude", "kernel.parts.1.base.lengthscale", "kernel.parts.1.amplitude"} < set(
        gp.samples_
    )
    assert (gp.samples_["kernel.parts.1.amplitude"] > 0).all()


def test_diagnostics(gp):
    az = pytest.importorskip("arviz")
    found = gp.diagnostics_
    assert found.keys() == gp.samples_.keys()
    noise = gp.samples_["noise"][..., 0, 0]
    assert found["noise"]["ess"] == pytest.approx(float(az.ess(noise)))
    assert found["noise"]["rhat"] == pytest.approx(float(az.rhat(noise)))
    entries = gp.samples_["lengthscale"].reshape(2, 6, 2)
    assert found["lengthscale"]["rhat"] == pytest.approx(max(float(az.rhat(entries[..., d])) for d in range(2)))


def test_diagnostics_of_one_chain(table):
    pytest.importorskip("arviz")
    gp = BayesianGPRegressor(sample=("u",), **{**SHORT, "n_samples": 12}).fit(*table)
    assert np.isfinite(gp.diagnostics_["u"]["rhat"])


@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_entry_that_does_not_move_is_not_hidden_by_others(place):
    pytest.importorskip("arviz")
    draws = np.random.default_rng(0).normal(size=(4, 50, 3))
    assert diagnostics({"z": draws})["z"]["rhat"] < 1.1
    draws[:, :, place] = 1.0
    assert np.isnan(diagnostics({"z": draws})["z"]["rhat"])


def test_one_sample_tells_nothing(table):
    pytest.importorskip("arviz")
    gp = BayesianGPRegressor(sample=("u",), **{**SHORT, "n_samples": 1}).fit(*table)
    assert np.isnan(gp.diagnostics_["u"]["rhat"])


def test_inference_data(gp, table):
    pytest.importorskip("arviz")
    posterior = gp.to_inference_data(table[0][:3]).posterior
    np.testing.assert_array_equal(posterior["u"], gp.samples_["u"])
    means = gp.predict_distribution(table[0][:3]).means
    assert posterior["f"].shape == (2, 6, 3)
    # Sites are draws of all chains, one draw after the other.
    np.testing.assert_allclose(posterior["f"].values, means.T.reshape(6, 2, 3).swapaxes(0, 1))


def test_files(gp, table, tmp_path):
    X, _ = table
    gp.save(tmp_path / "model")
    loaded = candid.load(tmp_path / "model")
    assert np.array_equal(loaded.predict_distribution(X).means, gp.predict_distribution(X).means)
    assert loaded.noise_ == gp.noise_
    with pytest.raises(AttributeError, match="has no samples of parameters"):
        loaded.to_inference_data()


def test_only_what_was_asked_for_is_sampled(table):
    gp = BayesianGPRegressor(sample=("u",), **TWO_CHAINS).fit(*table)
    assert gp.samples_.keys() == {"u"}
    assert gp._fitted.problem.prior is None
    assert gp.predict_distribution(table[0]).noise_stds.std() == pytest.approx(0, abs=1e-12)
    with_z = BayesianGPRegressor(sample=("u", "z"), inducing_prior="strauss", **SHORT).fit(*table)
    assert with_z.samples_.keys() == {"u", "z"}
    assert len(with_z._fitted.problem.prior.places) == 1


def test_chains_have_in_common_what_is_not_sampled(table):
    for sample, optimizer in ((("u",), "window"), (("u",), "adam"), (("u", "theta"), "adam")):
        gp = BayesianGPRegressor(sample=sample, optimizer=optimizer, **TWO_CHAINS).fit(*table)
        family = gp._fitted.problem.family
        assert torch.equal(*family.inner.points)
        assert torch.equal(*family.inner.kernel.amplitude.raw) == ("theta" not in sample)
        assert not torch.equal(*family.inner.weights.mean)


def test_noise_alone(table):
    gp = BayesianGPRegressor(sample=("noise",), **TWO_CHAINS).fit(*table)
    assert gp.samples_.keys() == {"noise"}
    p = gp.predict_distribution(table[0])
    assert p.means.shape == (60, 12)
    # Sites are draws of all chains, one draw after the other.
    expected = table[1].std() * np.sqrt(gp.samples_["noise"][..., 0, 0]).T.ravel()
    np.testing.assert_allclose(p.noise_stds[0], expected, rtol=1e-5)


def test_given_priors_stay(table):
    priors = {"lengthscale": LogNormal(5.0, 1e-4), "amplitude": LogNormal(2.0, 1e-4)}
    kernel = 2.0 * candid.kernels.RBF(5.0)
    gp = BayesianGPRegressor(priors=priors, sample=("u", "theta"), init="kmeans", kernel=kernel, **SHORT).fit(*table)
    np.testing.assert_allclose(gp.samples_["lengthscale"], 5.0, rtol=0.05)
    np.testing.assert_allclose(gp.samples_["amplitude"], 2.0, rtol=0.05)


@pytest.mark.parametrize(("objective", "same_as"), [("fitc", "ppgpr-delta"), ("vfe", "map")])
def test_data_terms_of_other_methods(objective, same_as, table):
    """The log of the expectation is ppgpr-delta's data term, the expectation of the log is map's."""
    gp = BayesianGPRegressor(objective=objective, **SHORT).fit(*table)
    other = make_gp(same_as, n_inducing=8, max_epochs=1, random_state=0).fit(*table)._fitted.problem
    problem = gp._fitted.problem.middle()
    other.family.load_state_dict(problem.family.state_dict())
    other.likelihood.load_state_dict(problem.likelihood.state_dict())
    x = torch.from_numpy(gp._fitted.inputs(table[0])).float()
    y = torch.from_numpy(gp._fitted.targets(table[1][:, None])).float()
    batch = candid.engines.Rows(x, y, torch.ones(60)).whole()
    torch.testing.assert_close(problem._data_term(batch)[0], other._data_term(batch)[0])
    torch.testing.assert_close(problem._data_term(batch)[1]["kl"], other._data_term(batch)[1]["kl"])


@pytest.mark.parametrize(
    "options",
    [
        {"sampler": "hmc"},
        {"sample": ("u",), "optimizer": "window"},
        {"objective": "vfe", "sample": ("u", "theta")},
        {"inducing_prior": "determinantal"},
        {"inducing_prior": "uniform", "n_chains": 3},
        {"init": "kmeans", "mean": "linear", "kernel": "rbf + linear"},
        {"validation_fraction": 0.2, "patience": 2},
        {"alpha": 1.0, "sample": ("u", "noise")},
        {"dtype": "float64", "batch_size": 16},
    ],
)
def test_variants(options, table):
    gp = BayesianGPRegressor(**{**SHORT, **options}).fit(*table)
    p = gp.predict_distribution(table[0])
    assert np.isfinite(p.log_prob(table[1])).all()
    again = BayesianGPRegressor(**{**SHORT, **options}).fit(*table)
    assert np.array_equal(again.predict_distribution(table[0]).means, p.means)


def test_two_targets_and_more_rows(table):
    X, y = table
    gp = BayesianGPRegressor(sample=("u", "theta", "z", "noise"), **SHORT).fit(X[:40], np.column_stack([y, -y])[:40])
    assert gp.predict_distribution(X).means.shape == (60, 2, 6)
    before = gp.predict(X)
    gp.partial_fit(X[40:], np.column_stack([y, -y])[40:])
    assert not np.array_equal(gp.predict(X), before)
    assert gp.noise_.shape == (2,)


def test_more_rows_of_known_noise(table):
    X, y = table
    gp = BayesianGPRegressor(alpha=1.0, **SHORT).fit(X[:40], y[:40]).partial_fit(X[40:], y[40:])
    assert gp.noise_ == pytest.approx(1.0)


def test_a_fit_that_was_killed_goes_on_bit_for_bit(table, tmp_path, monkeypatch):
    monkeypatch.setattr("candid.engines.checkpoint.SHARE_OF_TIME", 1e9)
    options = {**SHORT, "sample": ("u", "theta", "z", "noise"), "n_chains": 2}

    class Stop(Exception): ...

    def stop(record) -> None:
        if record.get("samples", 0) >= 3:
            raise Stop

    broken = BayesianGPRegressor(checkpoint_dir=str(tmp_path), callbacks=(stop,), **options)
    with pytest.raises(Stop):
        broken.fit(*table)
    assert len(list(tmp_path.iterdir())) == 1
    resumed = BayesianGPRegressor(checkpoint_dir=str(tmp_path), **options).fit(*table)
    whole = BayesianGPRegressor(**options).fit(*table)
    for name, draws in whole.samples_.items():
        assert np.array_equal(draws, resumed.samples_[name]), name
    assert not list(tmp_path.iterdir())


def test_inducing_points_that_are_given(table):
    X, y = table
    gp = BayesianGPRegressor(**{**SHORT, "init": X[:5]}).fit(X, y)
    assert gp.samples_["z"].shape[-2:] == (5, 2)
    with pytest.raises(ValueError, match=r"init must have shape \(M, 2\)"):
        BayesianGPRegressor(init=X[:5, :1]).fit(X, y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sample": ()}, "sample must name some of noise, theta, u, z"),
        ({"sample": ("u", "v")}, "sample must name some of"),
        ({"objective": "elbo"}, "objective must be one of fitc, vfe"),
        ({"hidden_widths": (0,)}, "numbers of GPs in each hidden layer"),
        ({"optimizer": "window"}, "with sample=\\('u',\\)"),
        ({"sample": ("noise",), "alpha": 0.1}, "there is nothing to sample"),
        ({"sample": ("theta",), "fixed": ("lengthscale", "amplitude", "constant")}, "there is nothing to sample"),
    ],
)
def test_mistakes(options, message, table):
    with pytest.raises(ValueError, match=message):
        BayesianGPRegressor(**options).fit(*table)


def test_outputs_that_share_latent_functions(table):
    X, y = table
    both = np.column_stack([y, 2 * y])
    gp = BayesianGPRegressor(outputs="coregionalised", n_latents=1, **TWO_CHAINS).fit(X, both)
    assert gp.samples_["u"].shape == (2, 6, 1, 8)
    assert gp.predict(X).shape == (60, 2)
    f = gp.to_inference_data(X[:3]).posterior["f"]
    assert f.shape == (2, 6, 3, 2)
    np.testing.assert_allclose(f.mean(("chain", "draw")), gp.predict(X[:3]), rtol=1e-6)
    with pytest.raises(ValueError, match="leave 'noise' out of sample"):
        BayesianGPRegressor(outputs="coregionalised", sample=("u", "noise"), **SHORT).fit(X, both)


def test_lengths_grow_with_the_table():
    short, long = chains_for(50, 1000, warm=True), chains_for(10**6, 1000, warm=True)
    assert (short.n_chains, short.n_samples, short.step_size) == (4, 16, 0.05)
    assert (long.n_chains, long.n_samples, long.thin, long.burn_in, long.epochs) == (1, 256, 32, 2000, 0)
    assert long.step_size == 0.01
    assert chains_for(5000, 1000, warm=True).step_size == pytest.approx(0.03)
    middle = chains_for(1000, 1000, warm=False)
    assert (middle.n_chains, middle.epochs) == (2, 1000)
    assert 64 < middle.n_chains * middle.n_samples < 256
    deep = chains_for(50, 1000, warm=True, deep=True)
    assert (deep.n_chains, deep.n_samples) == (1, 64)
    assert deep.burn_in > short.burn_in
    assert chains_for(50, 1000, warm=True, n_chains=2).n_samples == 32
    hmc = chains_for(1000, 1000, warm=True, hmc=True)
    assert (hmc.burn_in, hmc.thin) == (middle.burn_in, -(-middle.thin // 12))
    assert hmc.n_samples == middle.n_samples


def test_networks_are_refused(table):
    with pytest.raises(ValueError, match="weights of networks are not sampled"):
        BayesianGPRegressor(kernel=Deep((4, 2), RBF()), **SHORT).fit(*table)


def test_kernels_of_gpytorch_are_refused(table):
    gpytorch = pytest.importorskip("gpytorch")
    with pytest.raises(ValueError, match="a kernel of GPyTorch cannot be sampled"):
        BayesianGPRegressor(kernel=gpytorch.kernels.RBFKernel(), **SHORT).fit(*table)


class TestWhereChainsStart:
    """On more than 200 rows, inducing points and kernel are improved before any sample is drawn."""

    AT_REST: ClassVar = {"n_chains": 1, "n_inducing": 6, "sample": ("u",), "burn_in": 0, "n_samples": 1, "thin": 1}

    @pytest.fixture
    def rows(self):
        rng = np.random.default_rng(4)
        X = rng.uniform(-2, 2, size=(250, 1))
        return X, np.sin(3 * X[:, 0]) + 0.1 * rng.normal(size=250)

    def started(self, X, y, alpha=None, **parameters):
        gp = BayesianGPRegressor(**{**self.AT_REST, "random_state": 0, **parameters}, alpha=alpha).fit(X, y)
        return gp, gp._fitted.problem.family.middle().points.detach().numpy()[0]

    def test_points_leave_the_centres_of_kmeans(self, rows, monkeypatch):
        _, improved = self.started(*rows)
        monkeypatch.setattr(bayesian_start, "LEAST_ROWS", 250)
        _, centres = self.started(*rows)
        assert np.abs(np.sort(improved[:, 0]) - np.sort(centres[:, 0])).max() > 0.02

    def test_noise_is_that_of_the_kernels_start(self, rows):
        gp, _ = self.started(*rows)
        assert gp.noise_ == pytest.approx(0.1, rel=0.3)

    def test_given_points_stay(self, rows):
        given = np.linspace(-2, 2, 7)[:, None]
        _, points = self.started(*rows, init=given)
        x = rows[0]
        np.testing.assert_allclose(points, (given - x.mean()) / x.std(), rtol=1e-5)

    def test_some_rows_of_a_long_table_are_enough(self, rows, monkeypatch):
        monkeypatch.setattr(bayesian_start, "MOST_ROWS", 210)
        X, y = rows
        gp, _ = self.started(X, y, alpha=np.full(250, 0.01))
        assert np.sqrt(np.mean((gp.predict(X) - y) ** 2)) < 0.6


def test_as_good_as_an_exact_gp_with_optimised_hyperparameters(table):
    """With as many inducing points as rows, on new rows."""
    rng = np.random.default_rng(8)
    X = rng.normal(size=(200, 2)) * [1.0, 20.0] + [0.0, 100.0]
    y = 10 * np.sin(1.5 * X[:, 0]) + rng.normal(size=200) + 40
    everything = {"sample": ("u", "theta", "noise"), "n_inducing": 60, "random_state": 0}
    short = BayesianGPRegressor(**everything).fit(*table)
    long = BayesianGPRegressor(n_samples=50, thin=8, **everything).fit(*table)
    assert short._fitted.problem.n_chains == long._fitted.problem.n_chains == 4
    exact = ExactGPRegressor().fit(*table)
    nll, better, reference = (-gp.predict_distribution(X).log_prob(y).mean() for gp in (short, long, exact))
    assert nll < reference + 0.15
    assert better < reference + 0.1


def test_points_rest_between_trajectories(table):
    """Where they are not sampled: if they moved, the same whitened values would be another function."""
    options = {**SHORT, "max_epochs": 0, "sample": ("u", "theta"), "objective": "vfe"}
    burnt = [BayesianGPRegressor(sampler="hmc", **{**options, "burn_in": n}).fit(*table) for n in (1, 20)]
    places = [gp._fitted.problem.family.inner.points for gp in burnt]
    assert torch.equal(*places)
    moving = BayesianGPRegressor(sampler="sghmc", **options).fit(*table)._fitted.problem.family.inner.points
    assert not torch.equal(moving, places[0])


def test_chains_stay_with_a_function_that_has_no_noise():
    X = np.random.RandomState(0).uniform(-3, 3, (60, 1))
    gp = make_gp("mcmc-svgp", random_state=0, verbose=False, burn_in=40, n_samples=20).fit(X, np.sin(X[:, 0]))
    mean, std = gp.predict(X, return_std=True)
    assert np.abs(mean - np.sin(X[:, 0])).max() < 0.05
    assert np.median(std) < 0.05
