"""What maps inputs to marginals of the latent function."""

from candid.families.base import Family
from candid.families.basis import Regressors
from candid.families.centred import Centred
from candid.families.conditional import Conditional, decoupled_kernel
from candid.families.conditional_predictor import ConditionalPredictor
from candid.families.decoupled import Decoupled
from candid.families.dropout import Dropout
from candid.families.dropout_predictor import DropoutPredictor
from candid.families.embedded import Embedded, EmbeddedPredictor, inducing_part
from candid.families.exact import Exact
from candid.families.headed import HeadedNetwork
from candid.families.inducing import Inducing
from candid.families.local import SEARCHES, metric_of
from candid.families.means import Constant, Linear, Mean, NetworkMean, Zero, make_mean, mean_from_spec
from candid.families.neighbour_predictor import NeighbourPredictor
from candid.families.neighbours import Neighbours
from candid.families.orthogonal import Orthogonal
from candid.families.predictor import BasisPredictor, Joint, Predictor
from candid.families.rebuild import predictor_from_spec
from candid.families.sparse import Sparse
from candid.families.vecchia import Vecchia

__all__ = [
    "SEARCHES",
    "BasisPredictor",
    "Centred",
    "Conditional",
    "ConditionalPredictor",
    "Constant",
    "Decoupled",
    "Dropout",
    "DropoutPredictor",
    "Embedded",
    "EmbeddedPredictor",
    "Exact",
    "Family",
    "HeadedNetwork",
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
    "Vecchia",
    "Zero",
    "decoupled_kernel",
    "inducing_part",
    "make_mean",
    "mean_from_spec",
    "metric_of",
    "predictor_from_spec",
]
