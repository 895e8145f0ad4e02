"""What maps inputs to marginals of the latent function."""

from candid.families.base import Family
from candid.families.basis import Regressors
from candid.families.decoupled import Decoupled
from candid.families.exact import Exact
from candid.families.inducing import Inducing
from candid.families.local import metric_of
from candid.families.means import Constant, Linear, Mean, Zero, make_mean, mean_from_spec
from candid.families.neighbour_predictor import NeighbourPredictor
from candid.families.neighbours import Neighbours
from candid.families.orthogonal import Orthogonal
from candid.families.predictor import BasisPredictor, Joint, Predictor
from candid.families.rebuild import predictor_from_spec
from candid.families.sparse import Sparse

__all__ = [
    "BasisPredictor",
    "Constant",
    "Decoupled",
    "Exact",
    "Family",
    "Inducing",
    "Joint",
    "Linear",
    "Mean",
    "NeighbourPredictor",
    "Neighbours",
    "Orthogonal",
    "Predictor",
    "Regressors",
    "Sparse",
    "Zero",
    "make_mean",
    "mean_from_spec",
    "metric_of",
    "predictor_from_spec",
]
