"""What maps inputs to marginals of the latent function."""

from candid.families.base import Family
from candid.families.exact import Exact
from candid.families.inducing import Inducing
from candid.families.means import Constant, Linear, Mean, Zero, make_mean, mean_from_spec
from candid.families.predictor import BasisPredictor, Joint, Predictor, predictor_from_spec

__all__ = [
    "BasisPredictor",
    "Constant",
    "Exact",
    "Family",
    "Inducing",
    "Joint",
    "Linear",
    "Mean",
    "Predictor",
    "Zero",
    "make_mean",
    "mean_from_spec",
    "predictor_from_spec",
]
