"""Any row of the table of methods as an estimator."""

from __future__ import annotations

from typing import Any, Literal

from candid.estimators.bayesian import BayesianGPRegressor
from candid.estimators.bayesian_classifier import BayesianGPClassifier
from candid.estimators.core import Estimator
from candid.estimators.deep import DeepGPRegressor
from candid.estimators.deep_classifier import DeepGPClassifier
from candid.estimators.exact import ExactGPRegressor
from candid.estimators.neighbor_classifier import NeighborGPClassifier
from candid.estimators.neighbors import NeighborGPRegressor
from candid.estimators.network import NetworkRegressor
from candid.estimators.sparse import SparseGPRegressor
from candid.estimators.sparse_classifier import SparseGPClassifier
from candid.methods import find_method

__all__ = ["ESTIMATORS", "make_gp"]

#: Every estimator class by its name; the only classes that a model file can name.
ESTIMATORS: dict[str, type[Estimator]] = {
    cls.__name__: cls
    for cls in (
        SparseGPRegressor,
        SparseGPClassifier,
        ExactGPRegressor,
        NeighborGPClassifier,
        NeighborGPRegressor,
        NetworkRegressor,
        DeepGPClassifier,
        DeepGPRegressor,
        BayesianGPClassifier,
        BayesianGPRegressor,
    )
}


def make_gp(name: str, recipe: Literal["candid", "paper"] = "candid", task: str | None = None, **overrides: Any) -> Any:
    """An estimator for a method, by the name the papers give it.

    Parameters
    ----------
    name : str
        A row of :func:`candid.methods`, e.g. ``"ppgpr-chol"``.
    recipe : {"candid", "paper"}, default="candid"
        Our defaults, or the published protocol with its cold start and its number of epochs.
    task : {"regression", "classification"}, optional
        For methods that serve several tasks; by default the first one.
    **overrides
        Any parameter of the estimator.

    Examples
    --------
    >>> import candid
    >>> candid.make_gp("svgp", n_inducing=100, random_state=0)
    SparseGPRegressor(beta=1.0, n_inducing=100, objective='elbo', random_state=0)
    """
    method = find_method(name)
    if recipe not in ("candid", "paper"):
        raise ValueError(f"recipe must be 'candid' or 'paper', got {recipe!r}")
    estimator = ESTIMATORS[method.estimator_for(task)]
    chosen = method.candid if recipe == "candid" else method.published
    known = set(estimator().get_params())
    for key in overrides.keys() - known:
        raise ValueError(f"{estimator.__name__} has no parameter {key!r}; it has {', '.join(sorted(known))}")
    return estimator(**{**method.parameters, **chosen, **overrides})
