"""What the first fit of a process does not have to wait for."""

from __future__ import annotations

import subprocess
import sys

FIT = """
import sys
import numpy as np
import candid
X = np.random.default_rng(0).normal(size=(40, 2))
for method in ("svgp", "dspp", "loo-k", "sgpr"):
    candid.make_gp(method, max_epochs=2, random_state=0, verbose=False).fit(X, X[:, 0])
print(*sorted({"torch._dynamo", "torch._inductor", "sympy"} & set(sys.modules)))
"""


def test_torch_leaves_its_compiler_at_home():
    """Nothing is compiled by it, and to import it takes seconds."""
    done = subprocess.run([sys.executable, "-c", FIT], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
