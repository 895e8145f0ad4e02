"""Predictors from their descriptions, as model files hold them."""

from __future__ import annotations

from typing import Any

from candid.families.alc_predictor import DesignPredictor
from candid.families.conditional_predictor import ConditionalPredictor
from candid.families.drawn_predictor import DrawnPredictor
from candid.families.dropout_predictor import DropoutPredictor
from candid.families.embedded_predictor import EmbeddedPredictor
from candid.families.layers_predictor import LayersPredictor
from candid.families.mixed_predictor import MixedPredictor
from candid.families.mixture_predictor import MixturePredictor
from candid.families.neighbour_predictor import NeighbourPredictor
from candid.families.predictor import BasisPredictor, Predictor
from candid.families.swsgp_predictor import SubsetPredictor

__all__ = ["predictor_from_spec"]

MAKERS = {
    "basis": BasisPredictor.from_spec,
    "conditional": ConditionalPredictor.from_spec,
    "design": DesignPredictor.from_spec,
    "drawn": DrawnPredictor.from_spec,
    "dropout": DropoutPredictor.from_spec,
    "embedded": EmbeddedPredictor.from_spec,
    "layers": LayersPredictor.from_spec,
    "mixed": MixedPredictor.from_spec,
    "mixture": MixturePredictor.from_spec,
    "neighbours": NeighbourPredictor.from_spec,
    "subset": SubsetPredictor.from_spec,
}


def predictor_from_spec(spec: dict[str, Any], code: Any = None) -> Predictor:
    """Rebuild a predictor; its tensors are still to be loaded with ``load_state_dict(…, assign=True)``.

    Until then its own tensors take no memory, so a description of any size does no harm. ``code`` is the kernel that
    the model was fitted with, or the module that its features come from, if their code is not ours.
    """
    if spec.get("type") not in MAKERS:
        raise ValueError(f"unknown kind of predictor {spec.get('type')!r}")
    return MAKERS[spec["type"]](spec, code)
