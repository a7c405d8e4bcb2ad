"""A chart as files: SVG, PNG and PDF, without a browser."""

from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

from shoal.files import save

VERSION = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])  # of Vega-Lite


def export(spec: dict[str, Any], folder: Path, name: str) -> list[Path]:
    """Write a Vega-Lite chart, with its rows, to files of that name."""
    svg = vl_convert.vegalite_to_svg(spec, vl_version=VERSION)
    kinds = {"svg": svg.encode(), "png": vl_convert.svg_to_png(svg, scale=2.0), "pdf": vl_convert.svg_to_pdf(svg)}
    written = []
    for ending, content in kinds.items():
        written.append(save(folder / f"{name}.{ending}", content, "give --figures another place"))
    return written
