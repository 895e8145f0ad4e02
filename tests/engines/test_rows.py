from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from candid.engines import n_batches
from candid.engines.rows import batch_at
from small_models import random_rows


def indices(rows, batch_size: int, seed: int, epoch: int) -> list[torch.Tensor]:
    per_epoch = n_batches(len(rows), batch_size)
    return [batch_at(rows, epoch * per_epoch + k, batch_size, seed).index for k in range(per_epoch)]


@given(n=st.integers(1, 40), size=st.integers(1, 50), seed=st.integers(0, 2**31), epoch=st.integers(0, 5))
def test_an_epoch_visits_every_row_once(n, size, seed, epoch):
    parts = indices(random_rows(n), size, seed, epoch)
    assert torch.cat(parts).sort().values.tolist() == list(range(n))
    sizes = [len(part) for part in parts]
    assert max(sizes) <= size
    assert max(sizes) - min(sizes) <= 1


def test_batches_are_a_pure_function_of_seed_and_step():
    """Asked in any order, and whatever the state of torch's generator."""
    rows = random_rows(20)
    first = [batch_at(rows, step, 6, seed=3).index.tolist() for step in range(12)]
    torch.manual_seed(99)
    again = {step: batch_at(rows, step, 6, seed=3).index.tolist() for step in (7, 0, 11, 3, 4)}
    assert all(first[step] == index for step, index in again.items())


def test_epochs_and_seeds_differ():
    rows = random_rows(20)
    orders = [torch.cat(indices(rows, 6, seed, epoch)).tolist() for seed in (0, 1) for epoch in (0, 1, 2)]
    assert len({tuple(order) for order in orders}) == 6


def test_asking_for_batches_leaves_torchs_generator_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    batch_at(random_rows(20), 1234, 6, seed=8)
    assert torch.equal(torch.rand(3), expected)


def test_one_batch_is_the_table_in_order():
    rows = random_rows(7, weighted=True)
    batch = batch_at(rows, 4, 100, seed=0)
    assert torch.equal(batch.x, rows.x)
    assert batch.index.tolist() == list(range(7))


def test_a_batch_holds_its_rows():
    rows = random_rows(10, weighted=True)
    batch = batch_at(rows, 1, 4, seed=0)
    assert torch.equal(batch.x, rows.x[batch.index])
    assert torch.equal(batch.y, rows.y[batch.index])
    assert torch.equal(batch.weight, rows.weight[batch.index])
    assert batch.total == rows.weight.sum().item()


@pytest.mark.parametrize(("n", "size", "expected"), [(10, 3, 4), (10, 10, 1), (10, 11, 1), (1, 5, 1), (12, 4, 3)])
def test_number_of_batches(n, size, expected):
    assert n_batches(n, size) == expected


def test_the_total_is_summed_in_double():
    rows = random_rows(3).to(torch.float32)
    many = type(rows)(rows.x, rows.y, torch.tensor([2.0**24, 1.0, 1.0]))
    assert many.total == 2**24 + 2


def test_subset_and_dtype():
    rows = random_rows(6, weighted=True)
    part = rows.subset(torch.tensor([4, 1])).to(torch.float32)
    assert len(part) == 2
    assert part.x.dtype == part.y.dtype == part.weight.dtype == torch.float32
    torch.testing.assert_close(part.y, rows.y[[4, 1]].float())
