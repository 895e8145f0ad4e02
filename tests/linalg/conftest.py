from __future__ import annotations

import pytest
import torch

from candid.linalg import products


@pytest.fixture
def always_onednn(monkeypatch):
    """oneDNN multiplies whatever the processor, and the smallest of matrices."""
    monkeypatch.setattr(products, "_layer", lambda: torch.ops.mkldnn._linear_pointwise.default)
    monkeypatch.setattr(products, "LEAST_WORK", 1)
