from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from candid.metrics import SCORERS, crps, crps_scorer, nll, nll_scorer, rmse, rmse_scorer
from candid.predictive import PredictiveNormal


class FixedSpread(RegressorMixin, BaseEstimator):
    """A straight line with a given standard deviation."""

    def __init__(self, std=1.0):
        self.std = std

    def fit(self, X, y):
        self.line_ = LinearRegression().fit(X, y)
        return self

    def predict(self, X):
        return self.line_.predict(X)

    def predict_distribution(self, X):
        return PredictiveNormal(self.predict(X), 0.0, self.std)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    return X, X @ [1.0, -2.0] + 0.3 * rng.normal(size=300)


@pytest.mark.parametrize(("scorer", "metric"), [(nll_scorer, nll), (crps_scorer, crps), (rmse_scorer, rmse)])
def test_scorers_negate_metrics(data, scorer, metric):
    X, y = data
    model = FixedSpread(0.5).fit(X, y)
    weight = np.random.default_rng(1).random(300)
    assert scorer(model, X, y) == -metric(y, model.predict_distribution(X))
    assert scorer(model, X, y, sample_weight=weight) == -metric(y, model.predict_distribution(X), sample_weight=weight)


@pytest.mark.parametrize("name", ["candid_nll", "candid_crps"])
def test_grid_search_finds_the_right_spread(data, name):
    search = GridSearchCV(FixedSpread(), {"std": [0.03, 0.3, 3.0]}, scoring=SCORERS[name], cv=3)
    assert search.fit(*data).best_params_ == {"std": 0.3}


def test_pipelines_are_scored_on_transformed_inputs(data):
    X, y = data
    X = 100 + 10 * X
    pipeline = make_pipeline(StandardScaler(), "passthrough", FixedSpread(0.3)).fit(X, y)
    expected = -nll(y, PredictiveNormal(pipeline.predict(X), 0.0, 0.3))
    assert nll_scorer(pipeline, X, y) == pytest.approx(expected, rel=1e-12)


def test_other_estimators_are_refused(data):
    with pytest.raises(TypeError, match="LinearRegression has no predict_distribution"):
        rmse_scorer(LinearRegression().fit(*data), *data)
