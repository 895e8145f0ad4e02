"""Tables and studies of the paper on fully Bayesian sparse GPs."""

from __future__ import annotations

from candid.bench.spec import Budget, Row, Spec

__all__ = ["BSGP_TABLES"]

REFERENCE = (
    "Rossi, Heinonen, Bonilla, Shen, Filippone (2021), Sparse Gaussian processes revisited: Bayesian approaches to "
    "inducing-variable approximations, AISTATS"
)
PROTOCOL = "M = 100, RBF kernel with a lengthscale for each feature, eight folds of 80 : 20, targets in original units"
TABLES = ("housing", "concrete", "energy2", "kin8nm", "naval", "powerplant", "protein_raw", "yacht_raw")
SHORT_TABLES = ("housing", "concrete", "energy2", "yacht_raw")
EIGHT_FOLDS = tuple(range(8))
TRAIN_AND_TEST = (8.0, 2.0, 0.0)
DEEPEST = 5
SIZES = (10, 50, 100)

# Name → row: a model of one layer to five, which are as wide as the table.
DEEP = {
    f"{method} {layers}": Row(method, hidden_layers=layers - 1)
    for method in ("bsgp", "sghmc-dgp", "ipvi-dgp")
    for layers in range(1, DEEPEST + 1)
    # Of one layer it has a name of its own, sghmc-gp.
    if (method, layers) != ("sghmc-dgp", 1)
}
PRIORS = {
    f"bsgp {name}": Row("bsgp", {"inducing_prior": name}) for name in ("normal", "uniform", "determinantal", "strauss")
}
SAMPLED = {"u": ("u",), "u, θ": ("u", "theta"), "u, θ, Z": ("u", "theta", "z")}
ABLATION = {
    f"{what} M={size}": Row("bsgp", {"sample": parts}, {"n_inducing": size / max(SIZES)})
    for what, parts in SAMPLED.items()
    for size in SIZES
}
OBJECTIVES = {
    f"bsgp {layers} {objective}": Row("bsgp", {"objective": objective}, hidden_layers=layers - 1)
    for layers in (1, 2)
    for objective in ("fitc", "vfe")
}


def _study(name: str, title: str, rows: dict[str, Row], others: tuple[str, ...] = (), **more) -> Spec:
    """What the paper shows as a picture: no figure of it is published."""
    names = (*rows, *others)
    return Spec(
        name=name,
        title=title,
        reference=REFERENCE,
        protocol=PROTOCOL,
        published=None,
        budgets={
            "quick": Budget(SHORT_TABLES, names, splits=(0, 1, 2), n_inducing=max(SIZES)),
            "standard": Budget(TABLES, names, splits=EIGHT_FOLDS, n_inducing=max(SIZES)),
        },
        proportions=TRAIN_AND_TEST,
        parameters={"kernel": "rbf"},
        rows=rows,
        targets="original",
        several_outputs=True,
        **more,
    )


TABLE_6 = Spec(
    name="bsgp/table6",
    title="Table 6 of the paper on fully Bayesian sparse GPs: one layer to five",
    reference=REFERENCE,
    protocol=PROTOCOL,
    published="bsgp_table6",
    budgets={
        "quick": Budget(
            TABLES,
            ("svgp", "sghmc-gp", "bsgp 1", "bsgp 2", "bsgp 3", "sghmc-dgp 2", "ipvi-dgp 2"),
            splits=(0,),
            n_inducing=100,
            most_rows=10_000,
        ),
        "standard": Budget(TABLES, ("svgp", "sghmc-gp", *DEEP), splits=EIGHT_FOLDS, n_inducing=100),
    },
    proportions=TRAIN_AND_TEST,
    parameters={"kernel": "rbf"},
    rows=DEEP,
    targets="original",
    several_outputs=True,
)
PRIOR_STUDY = _study("bsgp/priors", "Priors of inducing inputs", PRIORS)
ABLATION_STUDY = _study(
    "bsgp/ablation", "What is sampled: inducing values, hyper-parameters, inducing inputs", ABLATION, ("svgp",)
)
OBJECTIVE_STUDY = _study(
    "bsgp/objectives",
    "The log of an expectation (fitc) against the expectation of the log (vfe)",
    OBJECTIVES,
    ("svgp", "vfitc", "mcmc-svgp"),
    pairs=(("bsgp 1 fitc", "bsgp 1 vfe"), ("bsgp 2 fitc", "bsgp 2 vfe")),
)
CLASSES = Spec(
    name="bsgp/classes",
    title="Flights that are late, and Higgs bosons: fully Bayesian against optimised",
    reference=REFERENCE,
    protocol="M = 100; other and far longer tables of flights (5.9 million) and of collisions (11 million), where bsgp "
    "has an NLL of 0.580 and 0.530, svgp of 0.595 and 0.544, and sghmc-gp of 0.646 and 0.628",
    published=None,
    budgets={
        "quick": Budget(
            ("nycflights13", "flights2024", "higgs_11k"),
            ("svgp", "sghmc-gp", "bsgp"),
            splits=(0,),
            n_inducing=100,
            most_rows=20_000,
        ),
        "standard": Budget(
            ("nycflights13", "flights2024", "higgs_11k"), ("svgp", "sghmc-gp", "bsgp"), (0, 1, 2), n_inducing=100
        ),
    },
    proportions=(9.0, 1.0, 0.0),
    parameters={"kernel": "rbf"},
    task="classification",
    two_classes=True,
)

BSGP_TABLES = (TABLE_6, PRIOR_STUDY, ABLATION_STUDY, OBJECTIVE_STUDY, CLASSES)
