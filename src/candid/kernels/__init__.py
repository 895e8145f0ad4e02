"""Covariance functions.

Stationary kernels, periodic and linear ones, and their sums and products, all with leading batch dimensions:
hyper-parameters of shape (P, 1, D) with inputs (P, M, D) and (B, D) give (P, M, B).
"""

from candid.kernels.base import Kernel
from candid.kernels.composite import Product, Scale, Sum
from candid.kernels.linear import Linear
from candid.kernels.parse import make_kernel
from candid.kernels.periodic import Periodic
from candid.kernels.spec import kernel_from_spec
from candid.kernels.stationary import RBF, Matern12, Matern32, Matern52, RationalQuadratic, Stationary
from candid.kernels.units import in_units

__all__ = [
    "RBF",
    "Kernel",
    "Linear",
    "Matern12",
    "Matern32",
    "Matern52",
    "Periodic",
    "Product",
    "RationalQuadratic",
    "Scale",
    "Stationary",
    "Sum",
    "in_units",
    "kernel_from_spec",
    "make_kernel",
]
