"""What maps inputs to marginals of the latent function."""

from candid.families.base import Family
from candid.families.basis import Regressors
from candid.families.conditional import Conditional, decoupled_kernel
from candid.families.conditional_predictor import ConditionalPredictor
from candid.families.decoupled import Decoupled
from candid.families.embedded import Embedded, EmbeddedPredictor
from candid.families.exact import Exact
from candid.families.inducing import Inducing
from candid.families.local import metric_of
from candid.families.means import Constant, Linear, Mean, NetworkMean, Zero, make_mean, mean_from_spec
from candid.families.neighbour_predictor import NeighbourPredictor
from candid.families.neighbours import Neighbours
from candid.families.orthogonal import Orthogonal
from candid.families.predictor import BasisPredictor, Joint, Predictor
from candid.families.rebuild import predictor_from_spec
from candid.families.sparse import Sparse

__all__ = [
    "BasisPredictor",
    "Conditional",
    "ConditionalPredictor",
    "Constant",
    "Decoupled",
    "Embedded",
    "EmbeddedPredictor",
    "Exact",
    "Family",
    "Inducing",
    "Joint",
    "Linear",
    "Mean",
    "NeighbourPredictor",
    "Neighbours",
    "NetworkMean",
    "Orthogonal",
    "Predictor",
    "Regressors",
    "Sparse",
    "Zero",
    "decoupled_kernel",
    "make_mean",
    "mean_from_spec",
    "metric_of",
    "predictor_from_spec",
]
