"""A crew's Cholesky factor, and rows measured by its matrix, are torch's."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("numba")

from candid.linalg import crew_cholesky
from candid.linalg.crew import crew
from candid.linalg.crew_cholesky import Bordered


def bordered(covariance, rows):
    """With anything above the diagonal."""
    room, n = Bordered(len(covariance), len(rows)), len(covariance)
    width = room.panels.shape[-1]
    loose = -covariance + torch.full_like(covariance, torch.nan).triu(1)
    for group in range(room.first_group):
        own = loose[group * width : (group + 1) * width]
        room.panels[group, :n, : len(own)] = own.mT
    room.write_rows(rows)
    return room


@pytest.mark.parametrize("size", [None, 1, 2, 3], ids=["no crew", "crew of one", "of two", "of three"])
@pytest.mark.parametrize("n", [1, 5, 24, 25, 96, 97, 250])
@pytest.mark.parametrize("n_rows", [1, 24, 33])
def test_rows_and_solutions(n, n_rows, size, draw):
    root, rows = draw(n, n), draw(n_rows, n)
    covariance = root @ root.mT / n + 0.1 * torch.eye(n).double()
    lower = torch.linalg.cholesky(covariance)
    with crew(size):
        room = bordered(covariance, rows)
        whitened = room.factorise().clone()
        solved = room.solved(torch.float64)
        single = bordered(covariance, rows)
        assert single.factorise() is not None
        assert single.solved(torch.float32).dtype == torch.float32
    expected = torch.linalg.solve_triangular(lower, rows.mT, upper=False)
    torch.testing.assert_close(whitened.transpose(1, 2).flatten(0, 1)[:n_rows], expected.mT)
    assert (whitened.transpose(1, 2).flatten(0, 1)[n_rows:] == 0).all()
    torch.testing.assert_close(solved, torch.cholesky_solve(rows.mT, lower).mT)


@pytest.mark.parametrize("n", [3, 130])
@pytest.mark.parametrize("place", [0, -1])
@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("value", [-1.0, torch.nan])
def test_there_may_be_no_factor(n, place, size, value, draw):
    covariance = torch.eye(n).double()
    covariance[place, place] = value
    with crew(size):
        assert bordered(covariance, draw(2, n)).factorise() is None


def test_blocks_are_whole_groups():
    width = crew_cholesky.group_width()
    assert Bordered(10, 1).panels.shape == (-(-10 // width) + 1, -(-10 // width) * width, width)
