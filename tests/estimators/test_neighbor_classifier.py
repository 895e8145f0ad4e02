"""Classification from nearest neighbours."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from scipy.special import expit

from candid import NeighborGPClassifier, NeighborGPRegressor, SparseGPClassifier, load, make_gp
from candid.estimators import neighbors
from candid.likelihoods.bernoulli import LogitRows
from candid.predictive import PredictiveBernoulli, PredictiveCategorical
from fragile import Interrupted

quick = partial(NeighborGPClassifier, n_neighbors=20, max_epochs=10, random_state=0)


@pytest.fixture(scope="module")
def rows():
    """200 rows in different units, and the log-odds of their second class."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2)) * [1.0, 100.0] + [0.0, 1000.0]
    return X, 4 * np.sin(2 * X[:, 0]) + 0.03 * (X[:, 1] - 1000.0)


@pytest.fixture(scope="module")
def two(rows):
    X, odds = rows
    return X, np.where(np.random.default_rng(1).random(200) < expit(odds), "yes", "no")


@pytest.fixture(scope="module")
def three(rows):
    X, odds = rows
    scores = np.column_stack([odds, -odds, 0.04 * (X[:, 1] - 1000.0)])
    return X, np.array([10, 20, 30])[(scores + np.random.default_rng(2).gumbel(size=scores.shape)).argmax(1)]


@pytest.fixture(scope="module")
def fitted(two):
    X, y = two
    return quick().fit(X[:150], y[:150])


def nll(gp, X, y) -> float:
    return -gp.predict_distribution(X).log_prob(y).mean()


class TestQuality:
    def test_two_classes(self, fitted, two, rows):
        X, y = two
        prediction = fitted.predict_distribution(X[150:])
        assert isinstance(prediction, PredictiveBernoulli)
        assert fitted.classes_.tolist() == ["no", "yes"]
        assert fitted.predictor_.n_outputs == 1
        # Nearly as good as the truth, and as inducing points
        truth = np.where(y == "yes", rows[1], -rows[1])[150:]
        assert nll(fitted, X[150:], y[150:]) < np.log1p(np.exp(-truth)).mean() + 0.12
        sparse = SparseGPClassifier(objective="elbo", beta=1.0, max_epochs=20, random_state=0).fit(X[:150], y[:150])
        assert nll(fitted, X[150:], y[150:]) < nll(sparse, X[150:], y[150:]) + 0.06

    def test_classes_that_do_not_overlap_are_told_apart_with_confidence(self):
        """With the whole divergence, variables of rows stay near their prior, and probabilities in the middle."""
        rng = np.random.default_rng(5)
        y = np.arange(300) % 3
        X = 4 * np.eye(3)[y] + rng.normal(size=(300, 3)) / 2
        bold, timid = (quick(beta=beta, max_epochs=30).fit(X[:200], y[:200]) for beta in (0.01, 1.0))
        assert nll(bold, X[200:], y[200:]) < 0.5 * nll(timid, X[200:], y[200:])
        assert bold.predict_proba(X[200:]).max(1).mean() > 0.95

    def test_training_improves_the_objective(self, two):
        X, y = two
        history = quick(init="cold", max_epochs=80).fit(X, y).history_
        assert history[-1]["loss"] < history[0]["loss"] - 0.02

    def test_several_classes(self, three):
        X, y = three
        gp = quick().fit(X[:150], y[:150])
        assert type(gp.predict_distribution(X[150:])) is PredictiveCategorical
        assert gp.predictor_.n_outputs == 3
        assert nll(gp, X[150:], y[150:]) < 0.6 * np.log(3)
        assert gp.score(X[150:], y[150:]) > 0.7

    def test_probabilities_of_several_classes_are_normalised_ones_of_each(self, three):
        X, y = three
        gp = quick().fit(X, y)
        mean, variance = map(torch.from_numpy, gp.predictor_.moments(torch.from_numpy(X)))
        each = LogitRows().log_expected_density(torch.ones_like(mean), mean, variance).exp().numpy()
        probabilities = gp.predict_proba(X)
        np.testing.assert_allclose(probabilities, each / each.sum(1, keepdims=True), rtol=1e-10)
        np.testing.assert_allclose(probabilities.sum(1), 1.0, rtol=1e-12)
        np.testing.assert_array_equal(gp.predict(X), gp.classes_[probabilities.argmax(1)])

    def test_two_classes_one_against_all(self, two):
        X, y = two
        gp = quick(likelihood="one-against-all").fit(X[:150], y[:150])
        assert gp.predictor_.n_outputs == 2
        assert nll(gp, X[150:], y[150:]) < 0.5

    def test_behind_a_network(self, hasty, two):
        X, y = two
        gp = quick(features=(8, 2)).fit(X[:150], y[:150])
        assert np.isfinite(nll(gp, X[150:], y[150:]))
        added = gp.partial_fit(X[150:170], y[150:170])
        assert np.isfinite(nll(added, X[170:], y[170:]))

    @pytest.mark.parametrize(("share", "n_rows"), [(0.3, 500), (0.1, 600), (0.03, 600)])
    def test_labels_without_a_reason_are_predicted_as_often_as_they_are(self, share, n_rows):
        generator = np.random.default_rng(1)
        X, y = generator.normal(size=(n_rows, 2)), (generator.uniform(size=n_rows) < share).astype(int)
        gp = NeighborGPClassifier(random_state=0, verbose=False).fit(X, y)
        predicted = gp.predict_proba(generator.normal(size=(1000, 2)))[:, 1].mean()
        assert predicted == pytest.approx(y.mean(), rel=0.2)


class TestNeighbours:
    def test_the_number_of_neighbours_is_chosen(self, monkeypatch, two):
        monkeypatch.setattr(neighbors, "CANDIDATES", (2, 30))
        X, y = two
        gp = quick(n_neighbors="auto", max_epochs=2).fit(X[:150], y[:150])
        assert gp.n_neighbors_ == 30
        assert gp.get_params()["n_neighbors"] == "auto"
        assert gp.classes_.tolist() == ["no", "yes"]
        # Held-out rows are neighbours, too.
        assert len(gp._inner.targets) == 150

    def test_search_and_few_rows(self, two):
        X, y = two
        assert quick().fit(X, y).search_ == {"kind": "exact", "recall": 1.0}
        small = quick().fit(X[:4], ["a", "b", "a", "b"])
        assert np.isfinite(small.predict_log_proba(X)).all()

    def test_weights_are_repetitions(self, two):
        X, y = two
        X, y = X[:60], y[:60]
        counts = np.random.default_rng(3).integers(1, 4, 60)
        weighted = quick().fit(X, y, sample_weight=counts).predict_proba(X)
        repeated = quick().fit(np.repeat(X, counts, axis=0), np.repeat(y, counts)).predict_proba(X)
        np.testing.assert_allclose(weighted, repeated, rtol=1e-10)


class TestMoreRows:
    def test_they_are_added_without_training(self, two):
        X, y = two
        gp = quick().fit(X[:60], y[:60])
        before, kernel = nll(gp, X[150:], y[150:]), gp.kernel_.state_dict()
        gp.partial_fit(X[60:150], y[60:150])
        assert len(gp._inner.targets) == 150
        assert nll(gp, X[150:], y[150:]) < before
        for name, tensor in gp.kernel_.state_dict().items():
            torch.testing.assert_close(tensor, kernel[name], rtol=0, atol=0)

    def test_a_sure_label_has_less_precision(self, two):
        """E ω = tanh(c/2)/2c is largest where f is about zero."""
        X, y = two
        gp = quick().fit(X[:150], y[:150])
        latent, _ = gp.predictor_.moments(torch.from_numpy(X[150:]))
        gp.partial_fit(X[150:], y[150:])
        targets, noise = gp._inner.targets[150:], gp._inner.noise[150:]
        torch.testing.assert_close(targets.abs(), 0.5 * noise)
        assert ((noise >= 4) & (noise < 200)).all()
        # Rows of a table are sorted.
        assert noise.max() > 1.05 * noise.min()
        assert np.abs(latent).max() > 1

    def test_labels_that_are_not_known(self, two):
        X, y = two
        gp = quick().partial_fit(X[:60], y[:60], classes=["no", "yes", "maybe"])
        assert gp.predict_proba(X).shape == (200, 3)
        with pytest.raises(ValueError, match="never"):
            gp.partial_fit(X[:2], ["never", "yes"])


class TestRuns:
    def test_files(self, tmp_path, fitted, two, three):
        for gp, (X, _) in ((fitted, two), (quick().fit(*three), three)):
            gp.save(tmp_path / "model.candid")
            again = load(tmp_path / "model.candid")
            np.testing.assert_array_equal(again.predict_log_proba(X), gp.predict_log_proba(X))
            np.testing.assert_array_equal(again.classes_, gp.classes_)

    def test_a_fit_can_be_repeated(self, fitted, two):
        X, y = two
        again = quick().fit(X[:150], y[:150])
        np.testing.assert_array_equal(again.predict_log_proba(X), fitted.predict_log_proba(X))

    def test_an_interrupted_fit_goes_on(self, tmp_path, fitted, two):
        X, y = two

        def stop(record):
            if record["epoch"] == 4:
                raise Interrupted

        with pytest.raises(Interrupted):
            quick(checkpoint_dir=str(tmp_path), callbacks=(stop,)).fit(X[:150], y[:150])
        assert list(tmp_path.iterdir())
        resumed = quick(checkpoint_dir=str(tmp_path)).fit(X[:150], y[:150])
        np.testing.assert_array_equal(resumed.predict_log_proba(X), fitted.predict_log_proba(X))


def test_what_it_cannot_do_is_said(two):
    X, y = two
    with pytest.raises(ValueError, match="objective"):
        quick(objective="vecchia").fit(X, y)
    with pytest.raises(ValueError, match="likelihood"):
        quick(likelihood="softmax").fit(X, y)
    with pytest.raises(ValueError, match="only one class"):
        quick().fit(X, np.zeros(200))
    with pytest.raises(ValueError, match="'mll' does not go with likelihood='student-t'; use objective='loo'"):
        NeighborGPRegressor(objective="mll", likelihood="student-t").fit(X, X[:, 0])


def test_the_method_by_name():
    assert isinstance(make_gp("loo-k", task="classification"), NeighborGPClassifier)
    assert isinstance(make_gp("loo-k"), NeighborGPRegressor)
