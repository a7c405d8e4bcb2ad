"""How charts look: colours, dashes and symbols of runs, axes and sizes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import altair as alt

# Okabe & Ito 2008, Color Universal Design, in an order that keeps neighbours apart, with a brown instead of yellow;
# orange, sky blue and purple are a little darker on white, so that every line has a contrast of 3 : 1 or more.
LIGHT = ("#000000", "#0072b2", "#d55e00", "#009e73", "#b8578c", "#b97f00", "#2b8fcb", "#7a5230")


DARK = ("#ffffff", "#4aa5e0", "#f0772a", "#1fbf90", "#de92bb", "#e69f00", "#9ad6f7", "#c9a27a")


# With three lengths that have no common divisor, 8 x 5 x 7 runs look different, also without colours.
DASHES = ((1, 0), (7, 3), (2, 2), (9, 3, 2, 3), (4, 2, 1, 2))


SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right")


FLAT = {"ink": "#1f2430", "good": "#0072b2", "given": "#d55e00", "none": "#9aa1ad", "paper": "#ffffff"}


class Mark(NamedTuple):
    """How a run looks, wherever it stands."""

    colour: int
    dash: tuple[int, ...]
    shape: str


def mark(at: int) -> Mark:
    return Mark(at % len(LIGHT), DASHES[at % len(DASHES)], SHAPES[at % len(SHAPES)])


@dataclass(frozen=True)
class Style:
    """Colours of a chart: names of CSS variables in a page, plain ones in files."""

    page: bool
    order: tuple[str, ...]  # all names of runs, which give each its colour

    def colour(self, name: str) -> str:
        return f"var(--{name})" if self.page else FLAT[name]

    def marks(self, names: Sequence[str]) -> list[Mark]:
        return [mark(self.order.index(name)) for name in names]

    def line(self, one: Mark) -> str:
        return f"var(--s{one.colour})" if self.page else LIGHT[one.colour]


def config(style: Style) -> dict[str, Any]:
    """Quiet axes in the colour of the text around them."""
    ink = "currentColor" if style.page else FLAT["ink"]
    font = "system-ui, sans-serif" if style.page else "Liberation Sans, Helvetica, Arial, sans-serif"
    return {
        "background": "transparent" if style.page else "#ffffff",
        "font": font,
        "view": {"stroke": None},
        "axis": {
            "labelColor": ink, "titleColor": ink, "domainColor": ink, "tickColor": ink, "gridColor": ink,
            "gridOpacity": 0.13, "domainOpacity": 0.4, "tickOpacity": 0.4, "labelFontSize": 12, "titleFontSize": 12,
            "titleFontWeight": "normal", "labelOverlap": True,
        },
        "legend": {"labelColor": ink, "titleColor": ink, "labelFontSize": 12, "titleFontSize": 12,
                   "titleFontWeight": "normal", "labelLimit": 260, "symbolStrokeWidth": 2},
        "header": {"labelColor": ink, "labelFontSize": 12, "labelFontWeight": "bold", "title": None},
        "title": {"color": ink, "fontSize": 14, "anchor": "start", "offset": 14},
    }  # fmt: skip


def finish(chart: alt.TopLevelMixin, style: Style, padding: int = 4) -> dict[str, Any]:
    """The chart as Vega-Lite, without its rows."""
    spec: dict[str, Any] = chart.to_dict(validate=True)
    inner = spec.pop("config", {})
    spec["config"] = config(style) | {name: inner[name] for name in inner if name not in ("view",)}
    spec["padding"] = padding if style.page else 16
    return spec


def upright(**more: Any) -> alt.Axis:
    """A vertical axis whose title lies above it, where it can be read and takes no width."""
    return alt.Axis(
        titleAngle=0, titleAlign="left", titleAnchor="end", titleBaseline="bottom", titleY=-10, titleX=0, domain=False,
        ticks=False, labelPadding=10, **more,
    )  # fmt: skip


BYTES = "replace(format(datum.value, '.3~s') + 'B', regexp('([a-zA-Z]+)$'), ' $1')"  # a tick of bytes: 5 kB


def rows(name: str = "rows") -> alt.NamedData:
    return alt.NamedData(name=name)


def size(style: Style, height: int, width: int = 620) -> dict[str, Any]:
    """Of a chart that is as wide as there is room."""
    return {"width": "container" if style.page else width, "height": height}


def look(style: Style, names: Sequence[str]) -> tuple[alt.Color, alt.StrokeDash, alt.Shape]:
    """Colour, dashes and symbols of runs. In a page the switches are the legend."""
    marks = style.marks(names)
    legend = None if style.page else alt.Legend(title=None, symbolSize=90, symbolOpacity=1)
    domain = list(names)
    colour = alt.Color("run:N", legend=legend, scale=alt.Scale(domain=domain, range=[style.line(m) for m in marks]))
    dash = alt.StrokeDash("run:N", legend=legend, scale=alt.Scale(domain=domain, range=[list(m.dash) for m in marks]))
    shape = alt.Shape("run:N", legend=legend, scale=alt.Scale(domain=domain, range=[m.shape for m in marks]))
    return colour, dash, shape
