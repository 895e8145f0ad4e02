"""Factorisations and solves that do not crash, with gradients written by hand where a closed form exists."""

from candid.linalg.autograd import first_order
from candid.linalg.cholesky import Factor, NotPositiveDefinite, cholesky
from candid.linalg.density import normal_log_density
from candid.linalg.whitening import whiten

__all__ = ["Factor", "NotPositiveDefinite", "cholesky", "first_order", "normal_log_density", "whiten"]
