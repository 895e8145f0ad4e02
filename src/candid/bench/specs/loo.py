"""Tables of the paper on leave-one-out losses."""

from __future__ import annotations

from candid.bench.spec import Budget, Choice, Grid, Spec

__all__ = ["LOO_TABLES"]

REFERENCE = "Jankowiak, Pleiss (2022), Scalable cross validation losses for Gaussian process models, AISTATS"
CHOSEN = "k is chosen among 32, 64, 128 and 256 on validation rows"
REGRESSION = ("pol", "elevators", "bike", "kin40k", "protein", "keggdirected", "keggundirected")
NEAREST = ("loo-k", "mll-k", "vecchia", "swsgp", "alc")
# The paper has no figures of the last two.
BINARY = ("titanic", "bank", "spambase", "musk2", "adult", "covtype_fir", "covtype_pine", "banana", "higgs_11k")
SEVERAL = (
    "cardio",
    "abalone",
    "winequality",
    "pageblocks",
    "optdigits",
    "landsat",
    "thyroid",
    "pendigits",
    "nursery",
    "chess",
    "shuttle",
    "covtype",
)
THREE_SPLITS = (0, 1, 2)
# What the divergence of a row's Pólya–Gamma variable counts; chosen as the recipe trains.
DIVERGENCE, AS_TRAINED = Grid("beta", (1.0, 0.1, 0.01)), Choice(max_epochs=None)

TABLE_7 = Spec(
    name="loo/table7",
    title="Table 7 of the paper on leave-one-out losses: regression from nearest neighbours",
    reference=REFERENCE,
    protocol=f"{CHOSEN} (alc: 64), 10 splits",
    published="loo_table7",
    budgets={
        "quick": Budget(REGRESSION, NEAREST, splits=(0,), parameters={"n_neighbors": 64}),
        "standard": Budget(REGRESSION, ("loo-k", "mll-k", "vecchia"), THREE_SPLITS, parameters={"n_neighbors": "auto"}),
    },
)
TABLE_9_BINARY = Spec(
    name="loo/table9-binary",
    title="Table 9 of the paper on leave-one-out losses: two classes",
    reference=REFERENCE,
    protocol=f"M = 1024 inducing points of svgp and pgvi; {CHOSEN}",
    published="loo_table9_binary",
    budgets={
        "quick": Budget(BINARY, ("svgp", "pgvi", "loo-k"), splits=(0,), n_inducing=200, most_rows=50_000),
        "standard": Budget(BINARY, ("svgp", "pgvi", "loo-k"), THREE_SPLITS, n_inducing=1024, choice=AS_TRAINED),
    },
    grids={"loo-k": DIVERGENCE},
    task="classification",
)
TABLE_9_SEVERAL = Spec(
    name="loo/table9-multiclass",
    title="Table 9 of the paper on leave-one-out losses: several classes",
    reference=REFERENCE,
    protocol=f"M = 512 inducing points of svgp; {CHOSEN}",
    published="loo_table9_multiclass",
    budgets={
        "quick": Budget(SEVERAL, ("svgp", "loo-k"), splits=(0,), n_inducing=100, most_rows=50_000),
        "standard": Budget(SEVERAL, ("svgp", "loo-k"), THREE_SPLITS, n_inducing=512, choice=AS_TRAINED),
    },
    grids={"loo-k": DIVERGENCE},
    task="classification",
)

LOO_TABLES = (TABLE_7, TABLE_9_BINARY, TABLE_9_SEVERAL)
