"""Layers of GPs whose parameters are sampled, through the estimator."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import candid
from candid import BayesianGPRegressor, make_gp
from candid.priors import LogNormal

SHORT = {
    "n_chains": 1,
    "n_inducing": 8,
    "burn_in": 20,
    "n_samples": 4,
    "thin": 2,
    "random_state": 0,
    "dtype": "float64",
}
TWO_CHAINS = {**SHORT, "n_chains": 2}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(50, 2)) * [1.0, 20.0] + [0.0, 100.0]
    return X, 10 * np.sin(1.5 * X[:, 0]) + rng.normal(size=50) + 40


@pytest.fixture(scope="module")
def gp(table):
    """Everything is sampled, by two chains."""
    everything = ("u", "theta", "z", "noise")
    return BayesianGPRegressor(hidden_widths=("D",), sample=everything, **TWO_CHAINS).fit(*table)


def test_samples_of_all_layers_have_names(gp):
    assert {name: draws.shape for name, draws in gp.samples_.items()} == {
        "hidden.0.z": (2, 4, 2, 8, 2),
        "hidden.0.lengthscale": (2, 4, 2, 1, 2),
        "hidden.0.amplitude": (2, 4, 2),
        "hidden.0.u": (2, 4, 2, 8),
        "z": (2, 4, 1, 8, 2),
        "lengthscale": (2, 4, 1, 1, 2),
        "amplitude": (2, 4, 1),
        "constant": (2, 4, 1),
        "u": (2, 4, 1, 8),
        "noise": (2, 4, 1, 1),
    }
    assert all(len(np.unique(draws)) == draws.size for draws in gp.samples_.values())


def test_predictions_are_mixtures_over_the_samples_of_all_chains(gp, table):
    X, y = table
    p = gp.predict_distribution(X)
    assert p.means.shape == p.noise_stds.shape == (50, 8)
    mean, std = gp.predict(X, return_std=True)
    np.testing.assert_allclose(mean, p.mean)
    np.testing.assert_allclose(std, p.std)
    _, covariance = gp.predict(X[:4], return_cov=True)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance)), std[:4])
    assert gp.sample_y(X[:3], 5).shape == (3, 5)
    assert np.sqrt(np.mean((mean - y) ** 2)) < 3.0


def test_a_component_is_one_sample_by_hand(gp, table):
    """Hidden values at the sample's own site, through kernels that are written out."""
    X, _ = table
    x = gp._fitted.inputs(X[:6])
    layers, samples = gp.predictor_.inner.inner, gp.samples_

    def matern(a, b, lengthscale):
        d = np.sqrt(5) * np.linalg.norm((a[:, None] - b) / lengthscale, axis=-1)
        return (1 + d + d**2 / 3) * np.exp(-d)

    def layer(inputs, prefix, chain, draw, output):
        z, u = (samples[prefix + name][chain, draw, output] for name in ("z", "u"))
        lengthscale, amplitude = samples[prefix + "lengthscale"][chain, draw, output], samples[prefix + "amplitude"]
        lower = np.linalg.cholesky(matern(z, z, lengthscale) + 1e-8 * np.eye(len(z)))
        a = np.linalg.solve(lower, matern(z, inputs, lengthscale))
        scale = amplitude[chain, draw, output]
        return np.sqrt(scale) * a.T @ u, scale * (1 - (a**2).sum(0))

    for model, (draw, chain) in {0: (0, 0), 5: (2, 1)}.items():
        site = layers.sites.points(0)[model, 0, 0].numpy()
        moments = [layer(x, "hidden.0.", chain, draw, gp_number) for gp_number in range(2)]
        hidden = np.stack([x[:, k] + mean + site[k] * np.sqrt(v) for k, (mean, v) in enumerate(moments)], 1)
        mean, variance = layer(hidden, "", chain, draw, 0)
        mean = mean + samples["constant"][chain, draw, 0]
        p, targets = gp.predict_distribution(X[:6]), gp._fitted.targets
        np.testing.assert_allclose(p.means[:, model], targets.shift + targets.scale * mean, rtol=1e-4)
        np.testing.assert_allclose(p.latent_stds[:, model], targets.scale * np.sqrt(variance), rtol=1e-3)


def test_diagnostics_and_inference_data(gp, table):
    pytest.importorskip("arviz")
    assert gp.diagnostics_.keys() == gp.samples_.keys()
    posterior = gp.to_inference_data(table[0][:3]).posterior
    np.testing.assert_array_equal(posterior["hidden.0.u"], gp.samples_["hidden.0.u"])
    assert posterior["f"].shape == (2, 4, 3)


def test_files(gp, table, tmp_path):
    gp.save(tmp_path / "model")
    loaded = candid.load(tmp_path / "model")
    assert np.array_equal(loaded.predict_distribution(table[0]).means, gp.predict_distribution(table[0]).means)
    assert np.array_equal(
        loaded.predict(table[0][:3], return_cov=True)[1], gp.predict(table[0][:3], return_cov=True)[1]
    )
    assert loaded.hidden_widths == ("D",)
    assert loaded.kernel_.base.lengthscale.value.shape == (1, 1, 2)


def test_hidden_layers_pass_on_what_is_below_them(table):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3)) @ np.diag([3.0, 1.0, 0.1])
    options = {**SHORT, "standardize": False, "init": "kmeans", "max_epochs": 0}
    gp = BayesianGPRegressor(hidden_widths=(3, 5, 2), **options).fit(X, X[:, 0])
    means = [layer.mean for layer in gp._fitted.problem.middle().family.layers]
    slopes = [mean.slope.value.detach().numpy() for mean in means[:-1]]
    np.testing.assert_array_equal(slopes[0], np.eye(3))
    np.testing.assert_array_equal(slopes[1], np.eye(3, 5))
    _, _, axes = np.linalg.svd(X - X.mean(0))
    np.testing.assert_allclose(np.abs(slopes[2][:3]), np.abs(axes[:2].T), atol=1e-9)
    assert not slopes[2][3:].any()
    assert all(not mean.constant.value.any() for mean in means[:-1])
    assert not any("slope" in name for name in gp.samples_)


@pytest.mark.parametrize(("widths", "n_seen"), [((1,), 3), ((2, 1), 3), (("D",), 2), ((4,), 4)])
def test_features_reach_the_last_layer_past_narrow_ones(widths, n_seen, table):
    X, _ = table
    gp = BayesianGPRegressor(hidden_widths=widths, **SHORT).fit(X, X[:, 0])
    assert gp.kernel_.base.lengthscale.value.shape[-1] == n_seen
    assert gp.samples_["z"].shape[-1] == n_seen


@pytest.mark.parametrize("name", ["bsgp", "sghmc-dgp"])
def test_narrow_layers_lose_no_feature(name):
    rng = np.random.default_rng(0)
    # The principal component is what the first two features have in common, and says nothing of the targets.
    common, *others = rng.normal(size=(3, 80))
    X = np.stack([common, common + 0.1 * rng.normal(size=80), *others], axis=1)
    y = np.sin(X[:, 2]) + X[:, 3] + 0.2 * rng.normal(size=80)
    gp = make_gp(name, hidden_widths=(1,), **{**SHORT, "n_inducing": 20}).fit(X, y)
    assert gp.score(X, y) > 0.7


def test_priors_of_all_layers(table):
    priors = {"hidden.0.kernel.base.lengthscale": LogNormal(5.0, 1e-4), "amplitude": LogNormal(0.3, 1e-4)}
    options = {**SHORT, "init": "kmeans", "max_epochs": 5, "kernel": 0.3 * candid.kernels.RBF(5.0)}
    gp = BayesianGPRegressor(hidden_widths=(1,), priors=priors, inducing_prior="strauss", **options).fit(*table)
    prior = gp._fitted.problem.prior
    # Two that were given (one of them for two layers), and those of the last lengthscale and of the constant
    assert len(prior.terms) == 5
    assert len(prior.places) == 2
    for name, centre in {"hidden.0.lengthscale": 5.0, "hidden.0.amplitude": 0.3, "amplitude": 0.3}.items():
        np.testing.assert_allclose(gp.samples_[name], centre, rtol=0.05)
    assert np.ptp(gp.samples_["lengthscale"]) > 1e-3


def test_more_rows(gp, table):
    X, y = table
    few = BayesianGPRegressor(hidden_widths=(2,), **SHORT).fit(X[:30], y[:30])
    middle = few._fitted.problem.middle().family.layers[0].points.detach()
    few.set_params(burn_in=0, n_samples=1, thin=1).partial_fit(X[30:], y[30:])
    after = torch.as_tensor(few.samples_["hidden.0.z"][0, 0])
    # Chains go on from the middle of the earlier ones.
    torch.testing.assert_close(after, middle, rtol=0, atol=0.1)


@pytest.mark.parametrize("widths", [(), (2,)])
def test_few_more_rows_leave_points_where_they_are(widths, table):
    """Where there are fewer points than were asked for, too: there is no room for twice as many."""
    X, y = table
    gp = BayesianGPRegressor(**{**SHORT, "n_inducing": 200, "hidden_widths": widths}).fit(X[:-3], y[:-3])
    middle = gp._fitted.problem.middle().family
    before = (middle.layers[0] if widths else middle).points.detach()
    gp.set_params(burn_in=0, n_samples=1, thin=1).partial_fit(X[-3:], y[-3:])
    after = torch.as_tensor(gp.samples_["hidden.0.z" if widths else "z"][0, 0])
    # Those of a single layer are improved a little before sampling; new points would be as many as there are rows.
    torch.testing.assert_close(after.reshape(before.shape), before, rtol=0, atol=0.5)


def test_a_fit_that_was_killed_goes_on_bit_for_bit(table, tmp_path, monkeypatch):
    monkeypatch.setattr("candid.engines.checkpoint.SHARE_OF_TIME", 1e9)
    options = {**SHORT, "hidden_widths": ("D",), "sample": ("u",), "optimizer": "window", "batch_size": 16}

    class Stop(Exception): ...

    def stop(record) -> None:
        if record.get("samples", 0) >= 2:
            raise Stop

    broken = BayesianGPRegressor(checkpoint_dir=str(tmp_path), callbacks=(stop,), **options)
    with pytest.raises(Stop):
        broken.fit(*table)
    resumed = BayesianGPRegressor(checkpoint_dir=str(tmp_path), **options).fit(*table)
    whole = BayesianGPRegressor(**options).fit(*table)
    assert whole.samples_.keys() == {"hidden.0.u", "u"}
    for name, draws in whole.samples_.items():
        assert np.array_equal(draws, resumed.samples_[name]), name
    assert np.array_equal(whole.predict(table[0]), resumed.predict(table[0]))


def test_published_depth(table):
    gp = make_gp("sghmc-dgp", n_inducing=5, burn_in=5, n_samples=2, thin=1, random_state=0).fit(*table)
    assert [layer.weights.mean.shape for layer in gp._fitted.problem.family.inner.layers] == [(1, 2, 5), (1, 1, 5)]
    deeper = make_gp("bsgp", hidden_widths=("D",) * 4, n_inducing=5, burn_in=3, n_samples=2, thin=1, random_state=0)
    assert np.isfinite(deeper.fit(*table).predict(table[0])).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden_widths": (0,)}, "numbers of GPs in each hidden layer"),
        ({"hidden_widths": ("E",)}, "or 'D' for as many as there are features"),
        ({"hidden_widths": (2,), "init": np.zeros((3, 2))}, "only a single layer sees"),
        ({"hidden_widths": (2,), "sampler": "hmc"}, "hidden values are random"),
    ],
)
def test_mistakes(options, message, table):
    with pytest.raises(ValueError, match=message):
        BayesianGPRegressor(**options).fit(*table)
