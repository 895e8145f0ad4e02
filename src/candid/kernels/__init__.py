"""Covariance functions.

Stationary kernels, periodic and linear ones, their sums and products, networks in front of them, and any kernel of
GPyTorch, all with leading batch dimensions: hyper-parameters of shape (P, 1, D) with inputs (P, M, D) and (B, D) give
(P, M, B).
"""

from candid.kernels.base import Kernel
from candid.kernels.composite import Product, Scale, Sum
from candid.kernels.deep import Deep, Embedding, unfold
from candid.kernels.features import Features, networks_in
from candid.kernels.foreign import adopt, from_gpytorch
from candid.kernels.foreign_network import ForeignNetwork, may_be_network
from candid.kernels.gpytorch_kernel import GPyTorchKernel, is_gpytorch
from candid.kernels.linear import Linear
from candid.kernels.networks import PRESETS, Network, adopt_network, make_network, network_from_spec
from candid.kernels.parse import make_kernel
from candid.kernels.periodic import Periodic
from candid.kernels.spec import kernel_from_spec
from candid.kernels.stationary import RBF, Matern12, Matern32, Matern52, RationalQuadratic, Stationary
from candid.kernels.units import in_units

__all__ = [
    "PRESETS",
    "RBF",
    "Deep",
    "Embedding",
    "Features",
    "ForeignNetwork",
    "GPyTorchKernel",
    "Kernel",
    "Linear",
    "Matern12",
    "Matern32",
    "Matern52",
    "Network",
    "Periodic",
    "Product",
    "RationalQuadratic",
    "Scale",
    "Stationary",
    "Sum",
    "adopt",
    "adopt_network",
    "from_gpytorch",
    "in_units",
    "is_gpytorch",
    "kernel_from_spec",
    "make_kernel",
    "make_network",
    "may_be_network",
    "network_from_spec",
    "networks_in",
    "unfold",
]
