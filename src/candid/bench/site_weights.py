"""What the sites of deep sigma point processes count after training: a table, and histograms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from candid.bench.markdown import number, table
from candid.bench.runner import Outcome
from candid.plots import leading_weights
from candid.plots.style import dress, new_axes

__all__ = ["draw_weights", "learned_weights", "weight_table"]

N_LEADING = 3
PANEL_WIDTH, PANEL_HEIGHT = 6.2, 2.8


def learned_weights(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Those whose model has sites that do not all count the same."""
    return [entry for entry in outcomes if np.ptp(entry.record.get("quadrature_weights", 0.0)) > 0]


def weight_table(outcomes: Sequence[Outcome]) -> str:
    """For each data set and method, averages over splits: the leading weights, and how many sites are in use."""
    rows = []
    for (data, method, n_sites), weights in _grouped(outcomes, by_data=True).items():
        leading = -np.sort(-weights, axis=1)[:, :N_LEADING]
        # exp(−Σ ω log ω): as many sites that count the same would be as uncertain
        in_use = np.exp(-np.sum(weights * np.log(np.maximum(weights, np.finfo(float).tiny)), axis=1))
        rows.append((data, method, str(n_sites), *map(number, leading.mean(0)), number(in_use.mean(), 1)))
    return table(("data", "method", "sites", "largest", "second", "third", "sites in use"), rows)


def draw_weights(outcomes: Sequence[Outcome]) -> Any:
    """A figure with one panel for each method and number of sites; models of all data sets and splits are counted."""
    groups = _grouped(outcomes, by_data=False)
    figure: Any = new_axes(PANEL_WIDTH, PANEL_HEIGHT * len(groups)).figure
    figure.clear()
    panels = figure.subplots(len(groups), squeeze=False).flatten()
    for ((_, method, _), weights), panel in zip(groups.items(), panels, strict=True):
        leading_weights(weights, N_LEADING, panel)
        dress(panel, f"{method}: {panel.get_title('left').lower()}", panel.get_xlabel(), panel.get_ylabel())
    return figure


def _grouped(outcomes: Sequence[Outcome], by_data: bool) -> dict[tuple[str, str, int], np.ndarray]:
    """Data set (or nothing), method and number of sites → weights (model, site)."""
    groups: dict[tuple[str, str, int], list[list[float]]] = {}
    for entry in outcomes:
        weights = entry.record["quadrature_weights"]
        groups.setdefault((entry.fit.data if by_data else "", entry.fit.name, len(weights)), []).append(weights)
    return {group: np.array(weights) for group, weights in groups.items()}
