"""Pictures of pages."""

import re
import struct
from pathlib import Path

import pytest

from bench import looks
from tests.browser import MISSING, start

PAGE = """<!doctype html><title>a page</title><meta name="viewport" content="width=device-width">
<style>body { margin: 0; height: 1500px; background: white }
@media (prefers-color-scheme: dark) { body { background: black } }</style><p style="width: 500px">words</p>"""


@pytest.mark.browser
def test_a_page_is_seen_whole_in_every_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    browser = start()
    if browser is None:
        pytest.skip(MISSING)
    browser.quit()
    page = tmp_path / "page.html"
    page.write_text(PAGE)
    made = looks.photographs(page, tmp_path / "out", list(looks.WAYS), top=False)
    sizes = {file.stem: struct.unpack(">II", file.read_bytes()[16:24]) for file in made}
    assert {name: size[0] for name, size in sizes.items()} == {
        f"page-{way}": width for way, (width, _, _) in looks.WAYS.items()
    }
    assert all(size[1] >= 1500 for size in sizes.values())
    assert made[0].read_bytes() != made[2].read_bytes(), "the dark is not dark"
    assert re.search(r"page.html, phone: 50\d pixels wide where 390 are seen", capsys.readouterr().out)
    (top,) = looks.photographs(page, tmp_path / "top", ["wide"], top=True)
    assert top.name == "page.png"
    assert struct.unpack(">II", top.read_bytes()[16:24]) == (1200, 900)
