"""What maps inputs to marginals of the latent function."""

from candid.families.alc import ALC
from candid.families.alc_predictor import DesignPredictor
from candid.families.base import Family
from candid.families.basis import Regressors
from candid.families.centred import Centred
from candid.families.conditional import Conditional, decoupled_kernel
from candid.families.conditional_predictor import ConditionalPredictor
from candid.families.coregionalised_neighbours import CoregionalisedNeighbours
from candid.families.decoupled import Decoupled
from candid.families.drawn_predictor import DrawnPredictor
from candid.families.dropout import Dropout
from candid.families.dropout_predictor import DropoutPredictor
from candid.families.embedded import Embedded, inducing_part
from candid.families.embedded_predictor import EmbeddedPredictor
from candid.families.exact import Exact
from candid.families.headed import HeadedNetwork
from candid.families.inducing import Inducing
from candid.families.layers import Layers
from candid.families.layers_predictor import LayersPredictor
from candid.families.local_likelihood import profiled_values
from candid.families.means import Constant, Linear, Mean, NetworkMean, Zero, make_mean, mean_from_spec
from candid.families.metric import metric_of
from candid.families.mixed_predictor import MixedPredictor
from candid.families.mixture_predictor import MixturePredictor
from candid.families.neighbour_predictor import NeighbourPredictor
from candid.families.neighbours import Neighbours
from candid.families.orthogonal import Orthogonal
from candid.families.posterior import Posterior
from candid.families.predictor import BasisPredictor, Joint, Predictor
from candid.families.rebuild import predictor_from_spec
from candid.families.searched import SEARCHES, pick_search
from candid.families.sites import RULES, FixedSites, LearnedGrid, LearnedSites, MonteCarlo, Rule, make_rule
from candid.families.sparse import Sparse
from candid.families.swsgp import SWSGP
from candid.families.swsgp_predictor import SubsetPredictor
from candid.families.vecchia import Vecchia
from candid.families.wiring import TOPOLOGIES, Wiring

__all__ = [
    "ALC",
    "RULES",
    "SEARCHES",
    "SWSGP",
    "TOPOLOGIES",
    "BasisPredictor",
    "Centred",
    "Conditional",
    "ConditionalPredictor",
    "Constant",
    "CoregionalisedNeighbours",
    "Decoupled",
    "DesignPredictor",
    "DrawnPredictor",
    "Dropout",
    "DropoutPredictor",
    "Embedded",
    "EmbeddedPredictor",
    "Exact",
    "Family",
    "FixedSites",
    "HeadedNetwork",
    "Inducing",
    "Joint",
    "Layers",
    "LayersPredictor",
    "LearnedGrid",
    "LearnedSites",
    "Linear",
    "Mean",
    "MixedPredictor",
    "MixturePredictor",
    "MonteCarlo",
    "NeighbourPredictor",
    "Neighbours",
    "NetworkMean",
    "Orthogonal",
    "Posterior",
    "Predictor",
    "Regressors",
    "Rule",
    "Sparse",
    "SubsetPredictor",
    "Vecchia",
    "Wiring",
    "Zero",
    "decoupled_kernel",
    "inducing_part",
    "make_mean",
    "make_rule",
    "mean_from_spec",
    "metric_of",
    "pick_search",
    "predictor_from_spec",
    "profiled_values",
]
