"""How loud hidden GPs are where a deep GP starts."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from candid.estimators.deep_start import HIDDEN_AMPLITUDE, LOUD, TENTHS, quieten
from candid.kernels import RBF, Scale


def amplitude_after(losses):
    """Of hidden GPs whose loss at 0.1ⁿ of the usual amplitude is ``losses[n]``, in such powers."""
    kernel = Scale(RBF(), 1.0).build(3)

    def power():
        return math.log10(HIDDEN_AMPLITUDE / float(kernel.amplitude.value.detach()))

    problem = SimpleNamespace(standing=lambda rows, batch_size: losses[round(power())])
    quieten(problem, [SimpleNamespace(kernel=kernel)], None, 10)
    return power()


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([0.5, 0.1], 0),
        ([9.0, 2.0, 0.8, 0.0], 2),
        ([1422.0, 403.0, 52.0, 4.2, -0.8, -1.3], 4),
        ([math.nan, math.inf, 3.0, 2.5], 2),
        ([0.5, math.nan], 0),
        ([float(10 - n) * LOUD for n in range(TENTHS + 1)], TENTHS),
    ],
)
def test_as_loud_as_is_cheap(losses, expected):
    assert amplitude_after(losses) == pytest.approx(expected, abs=1e-3)


def test_fixed_amplitudes_stay():
    kernel = Scale(RBF(), 1.0).build(3)
    kernel.amplitude.fix()
    quieten(SimpleNamespace(standing=lambda *_: 0.0), [SimpleNamespace(kernel=kernel)], None, 10)
    assert float(kernel.amplitude.value.detach()) == pytest.approx(1.0)
