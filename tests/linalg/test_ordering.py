from __future__ import annotations

import pytest
import torch

from candid.linalg import ORDERINGS


@pytest.mark.parametrize("name", ORDERINGS)
@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (40, 1), (40, 5)])
def test_every_point_has_one_place(name, shape, draw):
    order = ORDERINGS[name](draw(*shape), 0)
    assert order.sort().values.tolist() == list(range(shape[0]))


@pytest.mark.parametrize("name", ORDERINGS)
def test_points_that_are_all_alike(name):
    assert ORDERINGS[name](torch.ones(6, 2), 0).sort().values.tolist() == list(range(6))


def test_along_the_principal_component(draw):
    along = draw(50)
    points = torch.stack([0.1 * draw(50), 3 * along, along], dim=1)
    assert torch.equal(ORDERINGS["pca"](points + 100.0, 0), points[:, 1:].sum(-1).argsort())


def farthest_by_brute_force(points):
    centre = points.mean(0)
    order = [min(range(len(points)), key=lambda row: float((points[row] - centre).norm()))]
    while len(order) < len(points):
        rest = [row for row in range(len(points)) if row not in order]
        order.append(max(rest, key=lambda row: min(float((points[row] - points[other]).norm()) for other in order)))
    return order


@pytest.mark.parametrize("n_features", [1, 3])
def test_max_min_against_brute_force(n_features, draw):
    points = draw(30, n_features)
    assert ORDERINGS["maxmin"](points, 0).tolist() == farthest_by_brute_force(points)


def test_max_min_leaves_twins_to_the_end(draw):
    points = draw(10, 2)
    order = ORDERINGS["maxmin"](torch.cat([points, points[:4]]), 0)
    distinct = order[:10] % 10
    assert distinct.unique().numel() == 10


def test_max_min_of_a_long_table_is_refused():
    with pytest.raises(ValueError, match=r"compares all pairs.*use ordering='pca' or 'random'"):
        ORDERINGS["maxmin"](torch.zeros(1, 1).expand(50_001, 1), 0)


def test_a_random_order_follows_the_seed(draw):
    points = draw(50, 2)
    first, again, other = (ORDERINGS["random"](points, seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
