"""Shapes are checked wherever they are annotated, and every worker computes on one thread."""

from __future__ import annotations

import jaxtyping

# Before anything imports candid: what is imported earlier stays unchecked.
CHECKED = (
    "candid.linalg",
    "candid.kernels.gram",
    "candid.kernels.linear",
    "candid.kernels.periodic",
    "candid.kernels.profiles",
    "candid.kernels.stationary",
    "candid.marginal",
    "candid.weights",
    "candid.families",
    "candid.objectives",
)
jaxtyping.install_import_hook(CHECKED, "shape_checks.check")

import hypothesis  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402

from shape_checks import check_only_first_steps  # noqa: E402

check_only_first_steps()
torch.set_num_threads(1)
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("repeatable")


@pytest.fixture
def generator() -> torch.Generator:
    """Random numbers that are the same in every run."""
    return torch.Generator().manual_seed(20240607)


@pytest.fixture
def draw(generator):
    """Standard normal numbers in float64: ``draw(3, 4)`` is a 3×4 tensor."""
    return lambda *shape: torch.randn(*shape, dtype=torch.float64, generator=generator)


@pytest.fixture
def default_double():
    """Everything that is built meanwhile has float64 parameters."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.fixture
def hasty(monkeypatch):
    """Networks start from a small model that has hardly been trained."""
    monkeypatch.setattr("candid.engines.small_model.EPOCHS", 4)
