"""Pages show the tables of the bench's CSVs, made when the site is built."""

from bench import pages
from tests.command import ROOT


def test_pages_of_the_site_show_the_tables_of_the_bench() -> None:
    files = [page for page in (ROOT / "docs").rglob("*.md") if not {"_build", "reference"} & set(page.parts)]
    named = [found for page in files for found in pages.SHOWN.finditer(page.read_text())]
    assert {link[1] for link in named} == set(pages.TABLES)
    for link in named:
        assert link[2] == pages.TABLES[link[1]].file, link[0]
        head, rule, *lines = pages.made(link[1]).splitlines()
        assert head.count("|") == rule.count("|") > 2
        assert lines
    page = pages.shown("Before.\n\n[bench peers](results/peers.csv)\n\nAfter.\n")
    assert page.startswith("Before.\n\n| peer |")
    assert page.endswith("|\n\n\nAfter.\n")
