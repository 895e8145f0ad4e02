"""Early stopping on held-out rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

__all__ = ["EarlyStopping"]


class EarlyStopping:
    """Keeps the tensors of the epoch with the lowest held-out NLL, and knows when to give up waiting for a better one.

    Parameters
    ----------
    patience : int or None
        Epochs to wait; None neither stops nor keeps anything.
    """

    def __init__(self, patience: int | None) -> None:
        self.patience = patience
        self._nll, self._epoch = math.inf, 0
        self._tensors: dict[str, Tensor] | None = None

    def observe(self, epoch: int, nll: float, module: nn.Module) -> bool:
        """Take note of an epoch; true when the best one is ``patience`` epochs ago."""
        if self.patience is None:
            return False
        if nll < self._nll:
            self._nll, self._epoch = nll, epoch
            self._tensors = {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}
        return epoch - self._epoch >= self.patience

    def bring_back(self, module: nn.Module) -> None:
        """Put the best epoch's tensors into the module."""
        if self._tensors is not None:
            module.load_state_dict(self._tensors)

    def state(self) -> dict[str, Any]:
        return {"nll": self._nll, "epoch": self._epoch, "tensors": self._tensors}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._nll, self._epoch, self._tensors = state["nll"], state["epoch"], state["tensors"]
