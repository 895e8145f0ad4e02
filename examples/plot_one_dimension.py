"""
What the bands mean
===================

A function of one variable: the inner band is what the model does not know about the function, the outer one where new
observations fall.
"""

import matplotlib.pyplot as plt
import numpy as np

import candid

random = np.random.default_rng(0)
X = np.sort(random.uniform(-3, 3, 80))[:, None]
X = X[(X[:, 0] < -0.5) | (X[:, 0] > 1.0)]
y = np.sin(2 * X[:, 0]) + 0.2 * random.standard_normal(len(X))

gp = candid.make_gp("exact").fit(X, y)
print(gp.kernel_, "noise", round(gp.noise_, 3))

# %%
# Between −0.5 and 1 there are no observations, and the model says so.

_, ax = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
candid.plots.fit_1d(gp, X, y, ax)
plt.show()
