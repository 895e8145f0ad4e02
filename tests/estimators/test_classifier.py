"""Classification with inducing points."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pandas
import pytest
from safetensors.torch import save_file
from scipy.special import expit
from sklearn.base import clone

from candid import SparseGPClassifier, load
from candid.estimators import files, start
from candid.metrics import nll_scorer
from candid.predictive import PredictiveBernoulli, PredictiveCategorical

OBJECTIVES = {"elbo": 1.0, "predictive": 0.2, "polya_gamma": 1.0}


@pytest.fixture(scope="module")
def rows():
    """400 rows, and the log-odds of their second class."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2)) * [1.0, 100.0] + [0.0, 1000.0]
    return X, 4 * np.sin(2 * X[:, 0]) + 0.03 * (X[:, 1] - 1000.0)


@pytest.fixture(scope="module")
def two(rows):
    X, odds = rows
    return X, np.where(np.random.default_rng(1).random(400) < expit(odds), "yes", "no")


@pytest.fixture(scope="module")
def three(rows):
    X, odds = rows
    scores = np.column_stack([odds, -odds, 0.04 * (X[:, 1] - 1000.0)])
    return X, np.array([10, 20, 30])[(scores + np.random.default_rng(2).gumbel(size=scores.shape)).argmax(1)]


quick = partial(SparseGPClassifier, n_inducing=25, max_epochs=20, random_state=0)


def nll(gp, X, y) -> float:
    return -gp.predict_distribution(X).log_prob(y).mean()


@pytest.mark.parametrize(
    ("objective", "likelihood"),
    [*((objective, "bernoulli") for objective in OBJECTIVES), ("elbo", "probit"), ("predictive", "probit")],
)
def test_two_classes(objective, likelihood, two, rows):
    X, y = two
    gp = quick(objective=objective, likelihood=likelihood, beta=OBJECTIVES[objective]).fit(X[:300], y[:300])
    p = gp.predict_distribution(X[300:])
    assert isinstance(p, PredictiveBernoulli)
    assert gp.classes_.tolist() == ["no", "yes"]
    assert gp.predictor_.n_outputs == 1
    # Nearly as good as the truth
    truth = np.where(y == "yes", rows[1], -rows[1])[300:]
    assert nll(gp, X[300:], y[300:]) < np.log1p(np.exp(-truth)).mean() + 0.12
    proba = gp.predict_proba(X[300:])
    np.testing.assert_allclose(proba.sum(1), 1.0, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(proba[:, 1], p.probability)
    np.testing.assert_array_equal(gp.predict(X[300:]), gp.classes_[proba.argmax(1)])
    np.testing.assert_allclose(gp.predict_log_proba(X[300:]), np.log(proba))


@pytest.mark.parametrize("objective", ["elbo", "predictive"])
def test_several_classes(objective, three):
    X, y = three
    gp = quick(objective=objective, beta=OBJECTIVES[objective]).fit(X[:300], y[:300])
    p = gp.predict_distribution(X[300:])
    assert type(p) is PredictiveCategorical
    assert gp.classes_.tolist() == [10, 20, 30]
    assert gp.predictor_.n_outputs == 3
    assert nll(gp, X[300:], y[300:]) < 0.6 * np.log(3)
    assert gp.score(X[300:], y[300:]) > 0.7


def test_softmax_of_two_classes_is_about_the_logistic_function(two):
    X, y = two
    softmax, logistic = (quick(objective="elbo", likelihood=name).fit(X, y) for name in ("softmax", "bernoulli"))
    assert softmax.predictor_.n_outputs == 2
    assert np.abs(softmax.predict_proba(X) - logistic.predict_proba(X)).mean() < 0.05


@pytest.mark.parametrize(
    "options",
    [
        {"covariance": "none"},
        {"covariance": "diagonal", "decouple": "inducing"},
        {"decouple": "orthogonal", "objective": "elbo"},
        {"decouple": "kernel", "objective": "elbo"},
        {"decouple": "kernel", "objective": "polya_gamma"},
        {"features": (8, 4)},
        {"features": (8, 4), "inducing_space": "feature", "objective": "elbo"},
        {"features": (8, 4), "decouple": "mean"},
        {"init": "kmeans"},
        {"optimizer": "adam", "objective": "elbo"},
    ],
    ids=str,
)
def test_every_kind_of_model(options, two, hasty):
    X, y = two
    gp = quick(**options).set_params(max_epochs=60 if "init" in options else 5).fit(X[:300], y[:300])
    assert nll(gp, X[300:], y[300:]) < 0.95 * np.log(2)


def test_a_warm_start_is_nearly_there(two):
    """The loss at the start is most of the way from none to the best."""
    X, y = two
    history = quick(objective="elbo", beta=1.0, max_epochs=100).fit(X, y).history_
    best = min(record["loss"] for record in history)
    assert history[0]["loss"] - best < 0.15 * (np.log(2) - best)


def test_few_labels_start_with_one_lengthscale(two, monkeypatch):
    """In lengthscales of the standardised features; more of them tell the features apart."""
    X, y = two

    def ratio():
        lengthscale = quick(max_epochs=0).fit(X, y).kernel_.base.lengthscale.value.detach().numpy().ravel()
        return np.divide(*(lengthscale / X.std(axis=0)))

    assert ratio() == pytest.approx(1, rel=1e-4)
    monkeypatch.setattr(start, "FEW_ROWS", 300)
    assert ratio() < 0.8


def test_weights_are_repetitions(two):
    X, y = two
    X, y = X[:80], y[:80]
    weight = np.random.default_rng(3).integers(0, 4, size=80)
    weighted = quick().fit(X, y, sample_weight=weight)
    repeated = quick().fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "labels", [["no", "yes"], np.array(["no", "yes"], dtype=object), [False, True], [3, 7], [0.0, 1.0]], ids=str
)
def test_files_keep_labels(labels, two, tmp_path):
    X, y = two
    gp = quick(max_epochs=2).fit(X, np.asarray(labels)[(y == "yes").astype(int)])
    gp.save(tmp_path / "model.candid")
    again = load(tmp_path / "model.candid")
    assert again.classes_.dtype == gp.classes_.dtype
    np.testing.assert_array_equal(again.classes_, gp.classes_)
    np.testing.assert_array_equal(again.predict(X), gp.predict(X))
    np.testing.assert_array_equal(again.predict_proba(X), gp.predict_proba(X))
    assert not hasattr(again, "noise_")


def test_files_of_several_classes(three, tmp_path):
    X, y = three
    gp = quick(max_epochs=2, kernel="rbf").fit(pandas.DataFrame(X, columns=["a", "b"]), y)
    gp.save(tmp_path / "model.candid")
    again = load(tmp_path / "model.candid")
    X = pandas.DataFrame(X, columns=["a", "b"])
    np.testing.assert_array_equal(again.predict_proba(X[:9]), gp.predict_proba(X[:9]))


def test_partial_fit_adds_rows_and_knows_all_classes(three):
    X, y = three
    first = np.flatnonzero(y != 30)[:80]
    gp = quick(max_epochs=5).partial_fit(X[first], y[first], classes=[10, 20, 30])
    assert gp.classes_.tolist() == [10, 20, 30]
    before = nll(gp, X[300:], y[300:])
    gp.partial_fit(X[:300], y[:300])
    assert nll(gp, X[300:], y[300:]) < before
    with pytest.raises(ValueError, match=r"labels \[40\] that are not among the classes"):
        gp.partial_fit(X[:3], [10, 20, 40])
    with pytest.raises(ValueError, match=r"the classes of this model are \[10, 20, 30\]"):
        gp.partial_fit(X[:3], y[:3], classes=[10, 20])


def test_one_class_of_two_may_come_first(two):
    X, y = two
    alone = np.flatnonzero(y == "yes")[:30]
    gp = quick(max_epochs=2).partial_fit(X[alone], y[alone], classes=["no", "yes"])
    assert (gp.predict(X[alone]) == "yes").all()


def test_model_selection_by_log_probability(two):
    X, y = two
    gp = quick(max_epochs=2).fit(X, y)
    assert nll_scorer(gp, X, y) == pytest.approx(-nll(gp, X, y))
    weight = np.where(y == "yes", 1.0, 0.0)
    assert nll_scorer(gp, X, y, sample_weight=weight) == pytest.approx(-nll(gp, X[y == "yes"], y[y == "yes"]))


def test_early_stopping_watches_class_probabilities(two):
    X, y = two
    gp = quick(validation_fraction=0.2, patience=3, max_epochs=30).fit(X, y)
    values = [record["validation_nll"] for record in gp.history_]
    assert all(0 < value < np.log(2) for value in values)


def test_fits_are_repeatable(three):
    X, y = three
    gp = quick(max_epochs=3)
    np.testing.assert_array_equal(gp.fit(X, y).predict_proba(X), clone(gp).fit(X, y).predict_proba(X))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"likelihood": "bernoulli"}, "likelihood='bernoulli' is for two classes, and there are 3"),
        ({"objective": "polya_gamma"}, "objective='polya_gamma' is for two classes"),
        ({"objective": "vfitc"}, "no objective 'vfitc' for a 'softmax' likelihood; .*objective='elbo' or 'predictive'"),
        ({"objective": "sgpr"}, "no objective 'sgpr'"),
        ({"likelihood": "gaussian"}, "The 'likelihood' parameter"),
    ],
)
def test_what_does_not_exist(options, message, three):
    with pytest.raises(ValueError, match=message):
        quick(**options).fit(*three)


def test_one_class_is_not_enough(two):
    with pytest.raises(ValueError, match="only one class"):
        quick().fit(two[0], np.zeros(400))


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ({"dtype": "<U1", "values": ["a", "b"]}, "3 latent functions do not fit 2 classes"),
        ({"dtype": "<M8[s]", "values": [1, 2, 3]}, "labels are numbers or strings"),
        (None, "several outputs"),
    ],
)
def test_files_with_other_classes_are_refused(classes, message, three, tmp_path):
    path = tmp_path / "model.candid"
    quick(max_epochs=1).fit(*three).save(path)
    text, tensors = files._read(path)
    forged = json.dumps({**json.loads(text), "classes": classes})
    save_file(tensors, path, metadata={"candid": forged, "sha256": files._checksum(forged, tensors)})
    with pytest.raises(files.ModelFileError, match=message):
        load(path)
