"""
What the sites of a deep sigma point process count
==================================================

A deep sigma point process (``dspp``) takes the values of its hidden layer at ten sites, and predicts a mixture with one
normal distribution for each. It learns where the sites are and what each of them counts. M. Jankowiak, G. Pleiss, J. R.
Gardner, *Deep sigma point processes* (2020) show in their Figure 9 that the weights do not collapse: much of the weight
is on one site or two, but the others are used as well.
"""

# %%
# Fit
# ---
# A small table that scikit-learn ships and a made-up one, a hidden layer of three GPs, and three seeds. All sites count
# the same at first, so training is longer than it is by default on tables as short as these.

import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes, make_friedman1

import candid

tables = {"diabetes": load_diabetes(return_X_y=True), "friedman": make_friedman1(150, noise=1.0, random_state=0)}
models = {}
for name, (X, y) in tables.items():
    for seed in (0, 1, 2):
        gp = candid.make_gp("dspp", hidden_widths=(3,), n_inducing=15, max_epochs=120, lr=0.05, random_state=seed)
        models[name, seed] = gp.fit(X[:150], y[:150])
        print(name, seed, gp.quadrature_weights_.round(2))

# %%
# How large are the leading weights?
# ----------------------------------

_, ax = plt.subplots(figsize=(6.2, 3.8), layout="constrained")
candid.plots.leading_weights(models.values(), ax=ax)
plt.show()
