"""The benchmarks of accuracy, one published table each."""

from __future__ import annotations

from candid.bench.spec import Spec, pick
from candid.bench.specs.bsgp import BSGP_TABLES
from candid.bench.specs.dc import DC_TABLES
from candid.bench.specs.dspp import DSPP_TABLES
from candid.bench.specs.loo import LOO_TABLES
from candid.bench.specs.ppgpr import PPGPR_TABLES

__all__ = ["SPECS", "find_spec"]

#: Name of each benchmark of accuracy → what it is.
SPECS = {spec.name: spec for spec in (*PPGPR_TABLES, *DC_TABLES, *LOO_TABLES, *BSGP_TABLES, *DSPP_TABLES)}


def find_spec(name: str) -> Spec:
    """The benchmark called ``name``."""
    return pick(SPECS, name, "benchmark")
