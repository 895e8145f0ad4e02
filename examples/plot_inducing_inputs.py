"""
Where inducing points may be
============================

Other methods move inducing inputs to one best place. A fully Bayesian sparse GP (``bsgp``) samples them, so their
posterior can be seen. It depends on what is believed of them before the data: this example puts the four priors of S.
Rossi, M. Heinonen, E. Bonilla, Z. Shen, M. Filippone, *Sparse Gaussian processes revisited* (2021) side by side.
"""

# %%
# The data
# --------
# Two classes whose rows lie on two bent strips. The paper takes a table called banana, which looks much the same.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

import candid

X, y = make_moons(300, noise=0.25, random_state=0)
X_test, y_test = make_moons(1000, noise=0.25, random_state=1)

# %%
# Fit
# ---
# One model for each prior, with eight inducing points; four chains side by side take little longer than one.

priors = {
    "normal": "each point alone, around the centre",
    "uniform": "anywhere in a box",
    "determinantal": "values at the points differ",
    "strauss": "points keep a distance",
}


def distance_to_the_next(z):
    """From each inducing point to the one next to it, on average; the last axes of z are points and features."""
    distances = np.linalg.norm(z[..., :, None, :] - z[..., None, :, :], axis=-1)
    return np.where(np.eye(z.shape[-2], dtype=bool), np.inf, distances).min(-1).mean()


options = {"n_inducing": 8, "n_chains": 4, "burn_in": 250, "n_samples": 20, "thin": 5, "random_state": 0}
models = {}
for prior in priors:
    gp = candid.make_gp("bsgp", task="classification", inducing_prior=prior, **options)
    models[prior] = gp.fit(X, y)
    p = gp.predict_distribution(X_test)
    quality = f"accuracy {gp.score(X_test, y_test):.3f}, NLL {-p.log_prob(y_test).mean():.3f}"
    print(f"{prior}: {quality}, distance to the next point {distance_to_the_next(gp.samples_['z']):.2f}")

# %%
# Probabilities are averages over all samples, with contours at 0.1, 0.5 and 0.9.

grid = np.stack(np.meshgrid(np.linspace(-2, 3, 60), np.linspace(-1.5, 2, 60)), -1)
probability = models["normal"].predict_proba(grid.reshape(-1, 2))[:, 1].reshape(60, 60)
_, ax = plt.subplots(figsize=(5.6, 4.2), layout="constrained")
ax.contour(*np.moveaxis(grid, -1, 0), probability, [0.1, 0.5, 0.9], colors="black", linewidths=(0.8, 1.6, 0.8))
for label, colour, marker in ((0, "#D55E00", "o"), (1, "#009E73", "^")):
    ax.scatter(*X[y == label].T, s=9, color=colour, marker=marker, alpha=0.6, linewidths=0)
plt.show()

# %%
# The densities are those of all eight points together, and have many modes. With a normal prior, points stay among the
# rows and come close to each other; those that repel each other keep further apart, and reach beyond the rows. Of the
# predictions that is hardly to be seen.

figure, panels = plt.subplots(2, 2, figsize=(9, 7), sharex=True, sharey=True, layout="constrained")
for (prior, meaning), ax in zip(priors.items(), panels.flat, strict=True):
    candid.plots.inducing_inputs(models[prior], X, y, ax)
    ax.set_title(f"{prior}: {meaning}", loc="left", fontsize=9.5)
    ax.get_legend().remove()
    ax.label_outer()
plt.show()
