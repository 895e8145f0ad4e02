"""
A mean that bends faster than its error bars
============================================

Ten inducing points are few for a function that oscillates. With one kernel for everything, a sparse GP has to choose:
a short lengthscale follows the function but leaves gaps between the inducing points, in which nothing is known; a long
one closes the gaps but cannot follow. With decoupled conditionals (``dcsvgp``), the mean has a lengthscale of its own.
This is the one-dimensional example of X. Zhu, K. Wu, N. Maus, J. Gardner, D. Bindel, *Variational Gaussian processes
with decoupled conditionals* (2023).
"""

# %%
# The data
# --------
# 100 rows of a damped sine with noise of standard deviation 0.1.

import matplotlib.pyplot as plt
import numpy as np

import candid

random = np.random.default_rng(0)


def function(x):
    return np.exp(-x - 1) * np.sin(2 * np.pi * x)


def observe(n_rows):
    x = np.linspace(-2, 4, n_rows)
    return x[:, None], function(x) + 0.1 * random.standard_normal(n_rows)


X, y = observe(100)
X_test, y_test = observe(1000)

# %%
# Fit
# ---
# The weight β₂ of the penalty Ω says how close the two conditionals have to stay. Training is longer than by default,
# and its steps are larger: on a short table the default trusts its warm start, whose kernel is the best one for a model
# without inducing points. Ten of them are too few for that.

options = {"n_inducing": 10, "kernel": "rbf", "ard": False, "max_epochs": 1000, "lr": 0.05, "random_state": 0}
models = {"svgp": candid.make_gp("svgp", **options)}
for weight in (1.0, 0.1, 0.01):
    models[f"dcsvgp, β₂ = {weight}"] = candid.make_gp("dcsvgp", omega_weight=weight, **options)


def lengthscale(kernel):
    return kernel.unit.lengthscale.value.item()


predictions, captions = {}, {}
for name, gp in models.items():
    predictions[name] = gp.fit(X, y).predict_distribution(X_test)
    captions[name] = f"lengthscale {lengthscale(gp.kernel_):.2f}"
    if name != "svgp":
        captions[name] += f", of the mean {lengthscale(gp.mean_kernel_):.2f}"
    scores = candid.metrics.summary(y_test, predictions[name])
    captions[name] += f"\ntest NLL {scores['nll']:.2f}, RMSE {scores['rmse']:.3f}".replace("-", "−")
    print(f"{name}: {captions[name]}, noise {gp.noise_:.2f}".replace("\n", ", "))

# %%
# The smaller β₂, the further the lengthscales move apart, and the better the fit; the noise alone makes an RMSE of 0.1.
# Between the inducing points the band of the function bulges, less so if its lengthscale is long.

figure, panels = plt.subplots(2, 2, figsize=(9, 6.4), sharex=True, sharey=True, layout="constrained")
for (name, gp), ax in zip(models.items(), panels.flat, strict=True):
    candid.plots.fit_1d(gp, X, y, ax)
    ax.plot(X_test, function(X_test[:, 0]), color="black", linewidth=0.8, linestyle="dashed", label="truth")
    ax.set_title(f"{name}\n{captions[name]}", loc="left", fontsize=9.5)
    ax.get_legend().remove()
    ax.label_outer()
figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
plt.show()

# %%
# Where the uncertainty comes from
# --------------------------------
# What a model cannot follow, it calls noise. All four claim more noise than there is, so their z-scores are narrower
# than those of a calibrated model, but less so the smaller β₂ is. Of the variance that remains a larger share is noise:
# the uncertainty about the function has become smaller still.

figure, (upper, lower) = plt.subplots(2, 1, figsize=(7, 7), layout="constrained")
candid.plots.zscores(y_test, predictions, upper)
candid.plots.variance_share(predictions, lower)
plt.show()
