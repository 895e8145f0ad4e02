"""What predictors from training rows, or from inducing points, that are nearest to a row have in common."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from candid.families.means import Mean, mean_from_spec
from candid.families.predictor import Predictor
from candid.families.searched import SearchedRows
from candid.kernels import Kernel, kernel_from_spec

__all__ = ["MOST_TOGETHER", "NearbyPredictor"]

#: Rows of the largest matrix that a joint prediction makes.
MOST_TOGETHER = 10_000


class NearbyPredictor(Predictor):
    """Places with two numbers for each of them and each output, of which a row sees the k nearest ones.

    Parameters
    ----------
    kernel, mean : Kernel, Mean
        As fitted; the predictor keeps them.
    places : Tensor
        Inputs of training rows, or inducing points: N×D.
    metric : Tensor
        What inputs are divided by before distances are measured.
    n_neighbours : int
        k.
    search : {"exact", "hnsw"}
        How places are searched for.
    """

    #: The name under which a file speaks of it, and those of the shapes of its places and of their numbers.
    kind: ClassVar[str]
    shapes: ClassVar[tuple[str, str]]

    def __init__(
        self,
        kernel: Kernel,
        mean: Mean,
        places: Float[Tensor, "n d"],
        metric: Float[Tensor, " d"],
        n_neighbours: int,
        search: str,
    ) -> None:
        super().__init__()
        self.kernel, self.mean = kernel, mean
        self.rows = SearchedRows(places, metric, persistent=True, search=search)
        self.n_points = self.n_neighbours = n_neighbours
        self.requires_grad_(False)

    @abstractmethod
    def _numbers(self) -> Tensor:
        """The first numbers of all places; the second ones have their shape."""

    def _seen_by_any(self, x: Float[Tensor, "*chains n d"], what: str) -> Int[Tensor, " union"]:
        """The places that any row of ``x`` sees, if they are few enough; an error says ``what`` they are."""
        union = self.rows.nearest(x, self.n_neighbours).unique()
        if max(len(union), x.shape[-2]) > MOST_TOGETHER:
            raise ValueError(
                f"a joint prediction of {x.shape[-2]} rows makes matrices of the size of the {len(union)} {what} that "
                f"any of them sees (at most {MOST_TOGETHER}); ask for fewer rows at a time, or for their marginal "
                "distributions"
            )
        return union

    def to_spec(self) -> dict[str, Any]:
        places, numbers = self.shapes
        return {
            "type": self.kind,
            "kernel": self.kernel.to_spec(),
            "mean": self.mean.to_spec(),
            places: list(self.rows.x.shape),
            numbers: list(self._numbers().shape),
            "n_neighbours": self.n_neighbours,
            "search": self.rows.search,
        }

    @classmethod
    def _parts(cls, spec: dict[str, Any], code: Any) -> tuple[Kernel, Mean, tuple[Tensor, Tensor, Tensor], Any]:
        """Kernel, mean, places with both of their numbers, and metric, k and search, from a description."""
        places, numbers = cls.shapes
        needed = {"type", "kernel", "mean", places, numbers, "n_neighbours", "search"}
        if spec.keys() != needed:
            raise ValueError(
                f"a predictor of kind {cls.kind!r} is described by {sorted(needed)}, but this description has "
                f"{sorted(spec)}"
            )
        x, first, second = (
            torch.empty([int(size) for size in spec[name]], device="meta") for name in (places, numbers, numbers)
        )
        kernel, mean = kernel_from_spec(spec["kernel"], code), mean_from_spec(spec["mean"], code)
        search = x.new_empty(x.shape[-1]), int(spec["n_neighbours"]), str(spec["search"])
        return kernel, mean, (x, first, second), search
