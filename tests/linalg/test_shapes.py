"""The shapes that annotations promise are checked while tests run."""

from __future__ import annotations

import pytest
import torch
from jaxtyping import TypeCheckError

from candid.linalg import cholesky, normal_log_density, whiten
from candid.marginal import Batch, Marginal
from candid.weights import Full


def test_matrices_must_be_square():
    with pytest.raises(TypeCheckError):
        cholesky(torch.zeros(3, 4))


def test_features_need_as_many_rows_as_the_gram_matrix():
    with pytest.raises(TypeCheckError):
        whiten(torch.eye(3), torch.zeros(4, 5))


def test_batch_dimensions_must_agree():
    with pytest.raises(TypeCheckError):
        normal_log_density(torch.eye(3).repeat(2, 1, 1), torch.zeros(3, 3))


def test_integers_are_no_covariance():
    with pytest.raises(TypeCheckError):
        cholesky(torch.eye(3, dtype=torch.int64))


def test_values_between_rooms():
    row = torch.zeros(4, 1)
    with pytest.raises(TypeCheckError):
        Marginal(row, row, torch.zeros(1, 4))
    with pytest.raises(TypeCheckError):
        Batch(torch.zeros(4, 2), torch.zeros(4), torch.ones(4), 4.0)


def test_weights():
    with pytest.raises(TypeCheckError):
        Full(3, (1,)).assign(torch.zeros(1, 3), torch.eye(4).unsqueeze(0))
