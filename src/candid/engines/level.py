"""The level of a latent function: how much has to be added to it before observations are likeliest.

For f_i ~ N(mean_i, variance_i), one observation at a time, the shift c of an output maximises

    Σ_i w_i log E p(y_i|f_i + c) + ½ log σ(l + c) + ½ log σ(−l − c),

where l is the average of the means, and the last two terms are half a success and half a failure: without them, counts
that are all zero would have no level. For log-concave p the sum is concave, and its derivative has one zero.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid

from candid.engines.rows import Rows
from candid.likelihoods import Likelihood

__all__ = ["likeliest_shift"]

# So many rows, evenly spread over the table, are enough.
MOST_ROWS = 5000
# No shift is larger, and the error is 2⁻³⁰ of it.
LARGEST, N_HALVINGS = 25.0, 30


def likeliest_shift(
    likelihood: Likelihood, rows: Rows, mean: Float[Tensor, "n p"], variance: Float[Tensor, "n p"]
) -> Float[Tensor, " p"]:
    """c, for a likelihood with as many latent functions as outputs, each of them of its own."""
    some = torch.arange(0, len(rows), -(-len(rows) // MOST_ROWS), device=rows.x.device)
    at_rows, y, weight = likelihood.at(some), rows.y[some], rows.weight[some].unsqueeze(-1)
    mean, variance = mean[some].detach(), variance[some].detach()
    level = mean.mean(0)

    def objective(shift: Tensor) -> Tensor:
        likely = weight * at_rows.log_expected_density(y, mean + shift, variance)
        return likely.sum() + 0.5 * (logsigmoid(level + shift) + logsigmoid(-level - shift)).sum()

    low, high = torch.full_like(level, -LARGEST), torch.full_like(level, LARGEST)
    for _ in range(N_HALVINGS):
        middle = (0.5 * (low + high)).requires_grad_()
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(objective(middle), middle)
        middle = middle.detach()
        low, high = torch.where(slope > 0, middle, low), torch.where(slope > 0, high, middle)
    return 0.5 * (low + high)
