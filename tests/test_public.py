"""The public surface: names, version, examples in docstrings, and what an import costs."""

from __future__ import annotations

import doctest
import importlib
import inspect
import os
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import candid

SOURCE = Path(candid.__file__).parent
PUBLIC_MODULES = [
    "candid",
    "candid.bench",
    "candid.datasets",
    "candid.engines",
    "candid.estimators",
    "candid.families",
    "candid.kernels",
    "candid.likelihoods",
    "candid.linalg",
    "candid.metrics",
    "candid.objectives",
    "candid.plots",
    "candid.predictive",
    "candid.priors",
    "candid.weights",
]
WITH_EXAMPLES = sorted(
    ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
    for path in SOURCE.rglob("*.py")
    if ">>>" in path.read_text(encoding="utf-8")
)


def test_the_names_users_rely_on():
    assert {
        "DeepGPRegressor",
        "ExactGPRegressor",
        "NeighborGPClassifier",
        "NeighborGPRegressor",
        "NetworkRegressor",
        "SparseGPClassifier",
        "SparseGPRegressor",
        "__version__",
        "datasets",
        "kernels",
        "load",
        "make_gp",
        "methods",
        "metrics",
        "plots",
        "priors",
        "testing",
    } <= set(candid.__all__)


@pytest.mark.parametrize("name", PUBLIC_MODULES)
def test_all_is_what_it_says(name):
    module = importlib.import_module(name)
    assert len(set(module.__all__)) == len(module.__all__)
    for public in module.__all__:
        assert hasattr(module, public)
    # Whatever a package shows without an underscore is either promised or one of its own modules.
    shown = {
        public for public, value in vars(module).items() if not public.startswith("_") and not inspect.ismodule(value)
    }
    assert shown - set(module.__all__) - {"annotations"} == set()


@pytest.mark.parametrize("name", sorted(set(candid.__all__) - {"__version__"}))
def test_every_public_name_is_documented(name):
    assert inspect.getdoc(getattr(candid, name))


def test_every_parameter_of_an_estimator_is_documented():
    shared = inspect.getdoc(candid.SparseGPRegressor) or ""
    for name in candid.SparseGPRegressor().get_params():
        assert f"\n{name} :" in shared, f"SparseGPRegressor does not say what {name} is"
    for kind in (
        candid.DeepGPRegressor,
        candid.ExactGPRegressor,
        candid.NeighborGPClassifier,
        candid.NeighborGPRegressor,
        candid.NetworkRegressor,
    ):
        own = inspect.getdoc(kind) or ""
        for name in kind().get_params():
            assert name in own, f"{kind.__name__} does not say what {name} is"


def test_the_version_is_that_of_the_project():
    project = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert candid.__version__ == project["version"]


def test_the_version_is_that_of_the_installed_distribution():
    try:
        installed = metadata.version("candid-gp")
    except metadata.PackageNotFoundError:
        pytest.skip("candid is not installed, only on the path")
    assert candid.__version__ == installed


def test_there_are_examples():
    assert "candid.estimators.sparse" in WITH_EXAMPLES
    assert "candid.estimators.factory" in WITH_EXAMPLES


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_in_docstrings_run(name):
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.failed == 0


def test_importing_candid_leaves_optional_packages_alone():
    """What scikit-learn and torch import by themselves (pandas, where it is installed) does not count."""
    code = (
        "import sys, warnings; import torch, sklearn.utils.validation; before = set(sys.modules); "
        "warnings.simplefilter('error'); import candid; "
        "optional = {'matplotlib', 'pyarrow', 'pandas', 'polars', 'gpytorch', 'scoringrules', 'jinja2', 'typer'}; "
        "loaded = optional & (set(sys.modules) - before); "
        "sys.exit(', '.join(sorted(loaded)) if loaded else 0)"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE.parent)}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, f"importing candid imports {run.stderr}"
    assert run.stdout == ""


def test_types_are_declared():
    assert (SOURCE / "py.typed").exists()
