"""Tables of the paper on deep sigma point processes, and several outputs with the same methods."""

from __future__ import annotations

from candid.bench.spec import Budget, Choice, Grid, Row, Spec

__all__ = ["DSPP_TABLES"]

REFERENCE = "Jankowiak, Pleiss, Gardner (2020), Deep sigma point processes, UAI"
PROTOCOL = (
    "M = 300 inducing points of each GP (single layers: 1000), hidden layers of 3 or 5 GPs (3 or 4 for qr1 and qr2), "
    "10 sites (3 along each side of a grid), 400 epochs from a cold start, the best of 3 starts, {splits}"
)
TEN_SPLITS, FEWER_SPLITS = "10 splits", "10 splits (three layers: 5)"
DATA = ("pol", "elevators", "bike", "kin40k", "protein", "keggdirected", "keggundirected")
# Of the four data sets on which the paper goes deeper, those that we have.
DEEPER_DATA = ("kin40k", "protein", "keggdirected")
RULES = ("dspp-qr1", "dspp-qr2", "dspp-qr3")
DEPTHS = ("ppgpr-mfd", "dgp", "dspp-qr3", "dgp 3L", "dspp-qr3 3L")
SINGLE_AND_DEEP = ("od-svgp", "ppgpr-mfd", "gamma-dgp", "dgp", "dspp-qr3")
OUTPUTS = ("sarcos_test", "naval", "sgemm", "energy2", "jura", "argo2016")
THREE_SPLITS = (0, 1, 2)

ROWS = {
    # A grid of three points for each of three GPs has 27 sites.
    **{name: Row(name, {"hidden_widths": (3,)}) for name in ("dspp-qr1", "dspp-qr2")},
    **{f"{name} 3L": Row(name, {"hidden_widths": (5, 5)}) for name in ("dgp", "dspp-qr3")},
}
SIGMA_POINTS, LOWER_BOUND = Grid("beta", (0.01, 0.05, 0.2, 1.0)), Grid("beta", (0.1, 0.3, 0.5, 1.0))
GRIDS = {
    **dict.fromkeys((*RULES, "dspp-qr3 3L", "ppgpr-mfd"), SIGMA_POINTS),
    **dict.fromkeys(("dgp", "dgp 3L", "od-svgp"), LOWER_BOUND),
    "gamma-dgp": Grid("gamma", (1.01, 1.03, 1.05, 1.1)),
}


def _table(number: int, title: str, methods: tuple[str, ...], data: tuple[str, ...], splits: str) -> Spec:
    choice = Choice(n_inducing=100, max_epochs=10)
    return Spec(
        name=f"dspp/table{number}",
        title=f"Table {number} of the paper on deep sigma point processes: {title}",
        reference=REFERENCE,
        protocol=PROTOCOL.format(splits=splits),
        published="dspp_table9",
        budgets={
            "quick": Budget(data, methods, THREE_SPLITS, n_inducing=150, max_epochs=20),
            "standard": Budget(data, methods, THREE_SPLITS, n_inducing=300, choice=choice),
        },
        grids={name: grid for name, grid in GRIDS.items() if name in methods},
        rows={name: row for name, row in ROWS.items() if name in methods},
    )


TABLE_4 = _table(4, "where sites are", RULES, DATA, TEN_SPLITS)
TABLE_7 = _table(7, "one layer to three", DEPTHS, DEEPER_DATA, FEWER_SPLITS)
TABLE_9 = _table(9, "all methods", SINGLE_AND_DEEP, DATA, FEWER_SPLITS)
SEVERAL_OUTPUTS = Spec(
    name="dspp/outputs",
    title="Several outputs: single layers beside deep GPs and deep sigma point processes",
    reference=REFERENCE,
    protocol="other tables, with 150 inducing points in two layers and 300 in one, 8 sites, 300 epochs, 5 splits",
    published=None,
    budgets={
        "quick": Budget(
            OUTPUTS,
            ("svgp", "ppgpr-chol", "dgp", "dspp-qr3"),
            splits=(0,),
            n_inducing=100,
            max_epochs=20,
            most_rows=20_000,
        ),
        "standard": Budget(OUTPUTS, ("svgp", "ppgpr-chol", "dgp", "dspp-qr3"), THREE_SPLITS, n_inducing=150),
    },
    several_outputs=True,
)

DSPP_TABLES = (TABLE_4, TABLE_7, TABLE_9, SEVERAL_OUTPUTS)
