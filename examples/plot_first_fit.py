"""
Fit a table and look at the error bars
======================================

Three methods on a small table, judged on rows they have not seen.
"""

# %%
# The data
# --------
# Ten measurements of 442 patients, and how their disease progressed.

import matplotlib.pyplot as plt

import candid

table = candid.datasets.load("diabetes")
train, test, _ = table.split(seed=0)
X, y = table.Xy

# %%
# Fit
# ---

predictions = {}
for name in ("exact", "svgp", "ppgpr-chol"):
    gp = candid.make_gp(name, random_state=0).fit(X[train], y[train])
    predictions[name] = gp.predict_distribution(X[test])
    scores = candid.metrics.summary(y[test], predictions[name])
    print(name, {metric: round(float(score), 3) for metric, score in scores.items()})

# %%
# Are the error bars honest?
# --------------------------
# On honest error bars, the curves follow the diagonal.

_, ax = plt.subplots(figsize=(6.2, 4.2), layout="constrained")
candid.plots.calibration(y[test], predictions, ax)
plt.show()
