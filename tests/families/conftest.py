from __future__ import annotations

from contextlib import nullcontext

import pytest

from candid.families import block_inputs
from candid.linalg import triangular, without_machine_code
from candid.linalg.crew import crew


@pytest.fixture(params=[True, False], ids=["machine code", "torch"])
def both_ways(request):
    """By machine code, and by torch; whether it is machine code."""
    with nullcontext() if request.param else without_machine_code():
        yield request.param


@pytest.fixture(params=[None, 1, 2], ids=["no crew", "crew of one", "crew of two"])
def with_and_without_crew(request):
    """On one thread after the other, and shared out among as many as there are."""
    with crew(request.param):
        yield


@pytest.fixture
def small_blocks(monkeypatch):
    """A few rows are several blocks of rows, and a few points several blocks of a triangle."""
    monkeypatch.setattr(block_inputs, "BLOCK", 30)
    monkeypatch.setattr(block_inputs, "LEAST", 8)
    monkeypatch.setattr(triangular, "LEAST_ROWS", 2)
