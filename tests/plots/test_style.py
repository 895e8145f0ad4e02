"""Lines stay distinguishable."""

from __future__ import annotations

from candid.plots.style import OKABE_ITO, line_style


def test_styles_do_not_repeat_soon():
    styles = [(line_style(i)["color"], line_style(i)["linestyle"]) for i in range(2 * len(OKABE_ITO))]
    assert len(set(styles)) == len(styles)
    assert len({colour for colour, _ in styles[: len(OKABE_ITO)]}) == len(OKABE_ITO)
