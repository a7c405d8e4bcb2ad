"""How the site is built: `make docs`. generate.py writes the pages in docs/reference from the code, at every build."""

import os
import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import generate  # noqa: E402

import shoal  # noqa: E402
from bench import pages as bench_pages  # noqa: E402
from shoal_paper import tables  # noqa: E402

project = "shoal"
author = "The shoal developers"
copyright = "The shoal developers, Apache-2.0"  # noqa: A001
version = release = shoal.__version__

extensions = ["myst_nb"]
exclude_patterns = ["_build", "**.ipynb_checkpoints", "results/README.md"]
templates_path: list[str] = []
nitpicky = True

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "fieldlist"]
myst_heading_anchors = 4
myst_links_external_new_tab = False

nb_execution_mode = "force"  # what notebooks show is what this version of shoal does
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True

html_theme = "furo"
html_title = "shoal"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_theme_options: dict[str, Any] = {
    "light_css_variables": {"color-brand-primary": "#00629b", "color-brand-content": "#00629b"},
    "dark_css_variables": {"color-brand-primary": "#6cc4f5", "color-brand-content": "#6cc4f5"},
}
html_math_renderer = "mathml"
# Where the repository can be read, if it can: then every page links to its source.
if repository := os.environ.get("SHOAL_REPOSITORY", ""):
    html_theme_options |= {
        "source_repository": repository, "source_branch": "main", "source_directory": "docs/",
    }  # fmt: skip

# Pages of the repository's root that the site has a page of its own for, and folders.
ROOT_PAGES = {"README": "index", "REPRODUCED": "reproduced", "CONTRIBUTING": "contributing", "CHANGELOG": "changelog",
              "examples": "reference/examples", "results": "results"}  # fmt: skip
OUT = re.compile(r"\]\((?:\.\./)*(\w+)(?:\.md)?(#[\w-]+)?\)")
IN = re.compile(r"\]\(docs/")
NOTEBOOK = re.compile(r"\]\((?:\.\./)*examples/(\w+\.ipynb)")


def at_home(app: Sphinx, name: str, source: list[str]) -> None:
    """Links lead to the site's own pages, where in the repository they lead out of docs. A page of the root has its
    text from there. Tables stand in the place of the links to their CSVs."""
    own = next((root for root, page in ROOT_PAGES.items() if page == name and name != "index"), "")
    root = HERE.parent / f"{own}.md"
    text = IN.sub("](", root.read_text(encoding="utf-8")) if own and root.is_file() else source[0]

    def page(found: re.Match[str]) -> str:
        outside = own or "../" in found[0]
        return f"](/{ROOT_PAGES[found[1]]}.md{found[2] or ''})" if outside and found[1] in ROOT_PAGES else found[0]

    text = NOTEBOOK.sub(r"](/reference/\1", text)
    source[0] = OUT.sub(page, bench_pages.shown(tables.shown(text, HERE / "results")))


def formula(translator: Any, node: nodes.Element) -> None:
    """A formula as MathML, which browsers show by themselves: no script, no network."""
    inline = isinstance(node, nodes.math)
    found = tex2mathml(node.astext(), as_block=not inline)
    translator.body.append(found if inline else f'<div class="formula">{found}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """What Sphinx asks of a configuration that does something."""
    app.connect("config-inited", lambda app, config: generate.write(HERE))
    app.connect("source-read", at_home)
    app.add_html_math_renderer("mathml", (formula, None), (formula, None))
