"""Pictures of predictions and of training. Every function takes and returns matplotlib axes; none touches pyplot or its
state.

matplotlib is imported when the first picture is drawn, and is an optional dependency (``pip install
candid-gp[report]``).
"""

from candid.plots.calibration import calibration
from candid.plots.inducing_inputs import inducing_inputs
from candid.plots.leading_weights import leading_weights
from candid.plots.one_feature import fit_1d
from candid.plots.race import race
from candid.plots.variance_share import variance_share
from candid.plots.zscores import zscores

__all__ = ["calibration", "fit_1d", "inducing_inputs", "leading_weights", "race", "variance_share", "zscores"]
