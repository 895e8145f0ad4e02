"""Orders of points, for models in which a row is told what came before it.

Each is a function of points (N×D) and a seed, and gives the indices of the points, the first one first.

References
----------
J. Guinness (2018), Permutation and grouping methods for sharpening Gaussian process approximations.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

__all__ = ["ORDERINGS"]

# All pairs of points are compared: with more points this takes minutes.
MOST_COMPARED = 50_000


def along_principal_component(points: Float[Tensor, "n d"], seed: int) -> Int[Tensor, " n"]:
    """From one end to the other of the direction in which the points differ the most."""
    centred = (points - points.mean(0)).double()
    _, directions = torch.linalg.eigh(centred.mT @ centred)
    direction = directions[:, -1]
    # Of the two ends, the one at which the feature that counts the most is small.
    direction = direction * direction[direction.abs().argmax()].sign()
    return (centred @ direction).argsort(stable=True)


def farthest_first(points: Float[Tensor, "n d"], seed: int) -> Int[Tensor, " n"]:
    """From the middle, always to the point that is farthest from all before it (max-min); of equal ones the first."""
    if len(points) > MOST_COMPARED:
        raise ValueError(
            f"the max-min order compares all pairs of rows, and {len(points)} are too many (more than "
            f"{MOST_COMPARED}); use ordering='pca' or 'random'"
        )
    points = points.double()
    # Squared distance to the nearest of those that have their place.
    open_distance = torch.full_like(points[:, 0], torch.inf)
    order = [int((points - points.mean(0)).square().sum(-1).argmin())]
    for _ in range(len(points) - 1):
        open_distance = torch.minimum(open_distance, (points - points[order[-1]]).square().sum(-1))
        open_distance[order[-1]] = -1.0
        order.append(int(open_distance.argmax()))
    return torch.tensor(order, device=points.device)


def at_random(points: Float[Tensor, "n d"], seed: int) -> Int[Tensor, " n"]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randperm(len(points), generator=generator).to(points.device)


#: Orders by name.
ORDERINGS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "pca": along_principal_component,
    "maxmin": farthest_first,
    "random": at_random,
}
