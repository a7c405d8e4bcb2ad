"""What people read is true: links lead somewhere, every setting and method has its place, the site builds.

The quick tests look at every page; `make data` also builds the site, where any warning is an error. test_blocks.py runs
what pages show.
"""

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

import shoal
from tests.command import ROOT


def module(file: Path) -> Any:
    """A program that is no part of a package."""
    found = spec_from_file_location(file.stem, file)
    assert found is not None
    assert found.loader is not None
    made = module_from_spec(found)
    found.loader.exec_module(made)
    return made


PAGES = sorted([*ROOT.glob("*.md"), *(path for path in (ROOT / "docs").rglob("*.md")
                                      if not {"_build", "reference"} & set(path.parts))])  # fmt: skip
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")


def text(page: str | Path) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def prose(page: str) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", text(page), flags=re.M | re.S)


def anchors(content: str) -> set[str]:
    """What a link can name in a page: its headings, as they are turned into anchors everywhere."""
    heads = re.findall(r"^#{1,6} (.+)$", re.sub(r"^```.*?^```", "", content, flags=re.M | re.S), re.M)
    plain = [re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads]
    return set(plain)


@pytest.fixture(scope="module")
def generated() -> dict[Path, str]:
    """The pages that are written from the code, by their place."""
    return {
        ROOT / "docs" / "reference" / name: content
        for name, content in module(ROOT / "docs" / "generate.py").pages().items()
    }


@pytest.mark.parametrize("page", NAMES)
def test_every_link_leads_somewhere(page: str, generated: dict[Path, str]) -> None:
    for groups in LINK.findall(prose(page)):
        link = "".join(groups)
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        place = ROOT / "docs" / path.lstrip("/") if path.startswith("/") else (ROOT / page).parent / path
        target = Path(os.path.normpath(place)) if path else ROOT / page
        assert target.exists() or target in generated, f"{page} links to {link}, which is not there"
        if anchor:
            content = generated.get(target) or target.read_text(encoding="utf-8")
            assert anchor in anchors(content), f"{page} links to {link}, and {target.name} has no such heading"


def test_links_of_generated_pages_lead_somewhere(generated: dict[Path, str]) -> None:
    for page, content in generated.items():
        for groups in LINK.findall(re.sub(r"^```.*?^```", "", content, flags=re.M | re.S)):
            path = "".join(groups).partition("#")[0]
            if not path or re.match(r"[a-z]+:", path):
                continue
            place = ROOT / "docs" / path.lstrip("/") if path.startswith("/") else page.parent / path
            target = Path(os.path.normpath(place))
            assert target.exists() or target in generated, f"{page.name} links to {path}, which is not there"


def test_every_setting_and_method_has_its_place_on_a_page(generated: dict[Path, str]) -> None:
    from shoal.configure.checks import fields
    from shoal.learners.table import LEARNERS
    from shoal.runs.metrics import METRICS
    from shoal.sharing.modes import MODES

    pages = {path.relative_to(ROOT / "docs" / "reference").as_posix(): content for path, content in generated.items()}
    for name, _ in fields():
        there = pages["settings.md"] + "".join(pages[f"learners/{one}.md"] for one in LEARNERS.entries)
        assert f"`{name}`" in there, name
    for name in MODES.entries:
        assert f"`sharing.{name}.every`" in pages[f"sharing/{name}.md"], name
    for name in LEARNERS.entries:
        assert "`learner.epochs`" in pages[f"learners/{name}.md"], name
    for name in METRICS.entries:
        _, _, after = pages["metrics.md"].partition(f"## `{name}`")
        assert after.partition("\n## ")[0].count("$$") == 2, f"{name} has no formula"


def test_the_house_has_every_room() -> None:
    module(ROOT / "docs" / "generate.py")  # which finds the others
    house = module(ROOT / "docs" / "page_house.py")
    rooms = [room for floor in house.floors() for room in floor]
    assert set(house.WORDS) <= set(rooms), "a room is gone"
    assert all(f">{room}</text>" in house.house() for room in rooms)


def test_every_error_is_a_sentence_on_the_page_of_messages() -> None:
    module(ROOT / "docs" / "generate.py")  # which finds the others
    page = module(ROOT / "docs" / "page_messages.py")
    rooms = page.rooms()
    for file, known in (
        ("data/bank", "there are no rows"),
        ("settings/staff", "say a number of processes"),
        ("live/authority", "the certificate in"),
    ):
        assert any(known in one for one in rooms[file.partition("/")[0]][file]), file
    for files in rooms.values():
        for file, said in files.items():
            for sentence in said:
                assert sentence.endswith(page.UNSAID) or not sentence.endswith((".", ":", ";")), (file, sentence)
                assert "  " not in sentence, (file, sentence)


# The site and the package


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("myst_nb", reason="what builds the site is not installed; `make docs` installs it")
    words = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", ROOT / "docs", tmp_path]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "reference" / "first_fleet.html").read_text(encoding="utf-8").count("<svg") + len(
        list((tmp_path / "_images").glob("*.svg"))
    ) > 3
    assert "http" not in re.sub(r'href="[^"]*"|xmlns(:\w+)?="[^"]*"', "", text_of(tmp_path / "index.html"))


def text_of(file: Path) -> str:
    """What a page would load by itself."""
    return " ".join(re.findall(r"<(?:script|link|img)[^>]*>", file.read_text(encoding="utf-8")))


def test_all_files_say_the_same_version() -> None:
    assert tomllib.loads(text("pyproject.toml"))["project"]["version"] == shoal.__version__
    assert json.loads(text("codemeta.json"))["version"] == shoal.__version__
    assert re.findall(r"^version: (.+)$", text("CITATION.cff"), re.M) == [shoal.__version__]


def test_the_readme_stays_short() -> None:
    """Two screens before it says where to read on, without blocks of code and tables."""
    before = prose("README.md").partition("## Read on")[0]
    words = re.sub(r"^(\||    ).*$", "", before, flags=re.M).split()
    assert len(words) < 950, len(words)


def test_every_test_that_the_page_on_safety_names_is_there() -> None:
    said = set(re.findall(r"\btest_\w+", text("docs/findings.csv")))
    there = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert len(said) > 50
    assert said <= there
