"""Nearest-neighbour GPs of other libraries, each as its documentation recommends it, with a Matérn-5/2 kernel.

All have a lengthscale for each feature and learn amplitude and noise. Targets have mean zero, as all of them assume.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["GPBoostVecchia", "MuyGPS"]

SMOOTHNESS = 2.5
# MuyGPyS: rows whose leave-one-out likelihood is maximised, rows that are predicted at a time, and between which values
# parameters are searched.
BATCH_ROWS, CHUNK_ROWS = 500, 1000
LENGTHSCALES, NOISES = (0.05, 50.0), (1e-6, 1.0)


class GPBoostVecchia:
    """Vecchia's approximation of the marginal likelihood, by GPBoost.

    Parameters
    ----------
    k : int
        Neighbours.
    seed : int
        Of the order of the rows.
    """

    def __init__(self, k: int, seed: int) -> None:
        self.k, self.seed = k, seed
        self.model: Any = None

    def fit(self, x: np.ndarray, y: np.ndarray) -> GPBoostVecchia:
        from gpboost import GPModel  # pyright: ignore[reportMissingImports]

        self.model = GPModel(
            gp_coords=x,
            cov_function="matern_ard",
            cov_fct_shape=SMOOTHNESS,
            gp_approx="vecchia",
            num_neighbors=self.k,
            likelihood="gaussian",
            seed=self.seed,
        )
        self.model.fit(y=y)
        return self

    def predict(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        prediction = self.model.predict(gp_coords_pred=x, predict_var=True)
        return np.asarray(prediction["mu"]), np.sqrt(prediction["var"])


class MuyGPS:
    """Leave-one-out likelihood of some rows, maximised by L-BFGS-B, by MuyGPyS.

    Parameters
    ----------
    k : int
        Neighbours, which are those of equal lengthscales.
    seed : int
        Of the choice of rows.
    """

    def __init__(self, k: int, seed: int) -> None:
        self.k, self.seed = k, seed
        self.model: Any = None
        self.lookup: Any = None
        self.x, self.y = np.empty((0, 0)), np.empty(0)

    def fit(self, x: np.ndarray, y: np.ndarray) -> MuyGPS:
        from MuyGPyS import gp  # pyright: ignore[reportMissingImports]
        from MuyGPyS.gp.deformation import Anisotropy, l2  # pyright: ignore[reportMissingImports]
        from MuyGPyS.gp.hyperparameter import (  # pyright: ignore[reportMissingImports]
            AnalyticScale,
            Parameter,
            VectorParameter,
        )
        from MuyGPyS.gp.kernels import Matern  # pyright: ignore[reportMissingImports]
        from MuyGPyS.gp.noise import HomoscedasticNoise  # pyright: ignore[reportMissingImports]
        from MuyGPyS.neighbors import NN_Wrapper  # pyright: ignore[reportMissingImports]
        from MuyGPyS.optimize import L_BFGS_B_optimize  # pyright: ignore[reportMissingImports]
        from MuyGPyS.optimize.batch import sample_batch  # pyright: ignore[reportMissingImports]
        from MuyGPyS.optimize.loss import lool_fn  # pyright: ignore[reportMissingImports]

        self.x, self.y = x, y
        self.lookup = NN_Wrapper(x, self.k, nn_method="exact", algorithm="ball_tree")
        lengthscales = VectorParameter(*(Parameter(1.0, LENGTHSCALES) for _ in range(x.shape[1])))
        model = gp.MuyGPS(
            kernel=Matern(smoothness=Parameter(SMOOTHNESS), deformation=Anisotropy(l2, lengthscales)),
            noise=HomoscedasticNoise(1e-2, NOISES),
            scale=AnalyticScale(),
        )
        # MuyGPyS draws the rows from numpy's global generator.
        state = np.random.get_state()  # noqa: NPY002
        np.random.seed(self.seed)  # noqa: NPY002
        chosen, near = sample_batch(self.lookup, min(BATCH_ROWS, len(x)), len(x))
        np.random.set_state(state)  # noqa: NPY002
        crosswise, pairwise, targets, near_targets = model.make_train_tensors(chosen, near, x, y)
        model = L_BFGS_B_optimize(model, targets, near_targets, crosswise, pairwise, loss_fn=lool_fn, verbose=False)
        self.model = model.optimize_scale(pairwise, near_targets)
        return self

    def predict(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        chunks = np.array_split(x, max(1, -(-len(x) // CHUNK_ROWS)))
        mean, variance = (np.concatenate(part) for part in zip(*map(self._predict, chunks), strict=True))
        return mean, np.sqrt(variance)

    def _predict(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        near, _ = self.lookup.get_nns(x)
        rows = np.arange(len(x))
        crosswise, pairwise, targets = self.model.make_predict_tensors(rows, near, x, self.x, self.y)
        inside, across = self.model.kernel(pairwise), self.model.kernel(crosswise)
        mean = np.ravel(self.model.posterior_mean(inside, across, targets))
        # The variance is that of the latent function; noise is relative to the scale.
        latent = np.ravel(self.model.posterior_variance(inside, across))
        return mean, latent + float(self.model.scale()) * float(self.model.noise())
