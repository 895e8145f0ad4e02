"""Any row of the table of methods as an estimator."""

from __future__ import annotations

from typing import Any, Literal

from candid.estimators.base import Regressor
from candid.estimators.exact import ExactGPRegressor
from candid.estimators.neighbors import NeighborGPRegressor
from candid.estimators.network import NetworkRegressor
from candid.estimators.sparse import SparseGPRegressor
from candid.methods import find_method

__all__ = ["ESTIMATORS", "make_gp"]

#: Every estimator class by its name; the only classes that a model file can name.
ESTIMATORS: dict[str, type[Regressor]] = {
    cls.__name__: cls for cls in (SparseGPRegressor, ExactGPRegressor, NeighborGPRegressor, NetworkRegressor)
}


def make_gp(
    name: str, recipe: Literal["candid", "paper"] = "candid", task: str | None = None, **overrides: Any
) -> Regressor:
    """An estimator for a method, by the name the papers give it.

    Parameters
    ----------
    name : str
        A row of :func:`candid.methods`, e.g. ``"ppgpr-chol"``.
    recipe : {"candid", "paper"}, default="candid"
        Our defaults, or the published protocol with its cold start and its number of epochs.
    task : {"regression"}, optional
        Needed only where a method serves several tasks.
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
    if task is not None and task not in method.tasks:
        raise ValueError(f"{name} is for {' and '.join(method.tasks)}, not for {task!r}")
    chosen = method.candid if recipe == "candid" else method.published
    estimator = ESTIMATORS[method.estimator]
    known = set(estimator().get_params())
    for key in overrides.keys() - known:
        raise ValueError(f"{method.estimator} has no parameter {key!r}; it has {', '.join(sorted(known))}")
    return estimator(**{**method.parameters, **chosen, **overrides})
