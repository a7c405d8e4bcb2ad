"""Every block that README and the site show is run: programs, commands, settings files.

A block runs as a reader would run it, only smaller: programs with fewer epochs, commands with settings that are at most
those in `SMALL`, on the digits where a page names data that is not here, on the CPU where it names a GPU. By default
these are all programs, all settings files, README's commands and those that train nothing; `make data` runs the rest,
and the programs as they stand. A block of a kind that nothing runs, or a command that is neither run nor in `UNTRIED`,
fails.
"""

import os
import re
import shlex
import shutil
import tomllib
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from typer.main import get_command

from shoal.cli.commands import app
from shoal.cli.examples import EXAMPLES
from shoal.configure.reading import experiments, read
from shoal.errors import SettingsError
from shoal.settings.groups import Settings
from shoal.study.sweep import grid
from tests.command import ROOT, call, program_in
from tests.test_pages import PAGES, module

FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.M | re.S)
PROGRAMS, COMMANDS, SETTINGS = ("python", "{code-cell} ipython3"), ("console", "indented"), ("toml",)
PICTURES = ("", "text", "{toctree}", "{raw} html")
ELSEWHERE = ("pycon", "{code-block} python")  # docstrings are run by test_public.py, examples by test_examples.py
SMALL = {"agents": 3, "tasks.count": 6, "tasks.train": 4, "tasks.validation": 4, "net.width": 8, "net.depth": 2,
         "learner.epochs": 16, "learner.memory": 4}  # fmt: skip
HERE = {"20 kB/task": "2 MB/task", "200 kB/task": "2 MB/task",  # so small a fleet asks little, and at once
        "machine.device=cuda": "machine.device=cpu"}  # fmt: skip
FEWER = {r'(?<="epochs": )\d+|(?<=\bepochs=)\d+': 17, r"(?<=\bseeds=)\d+": 2}  # modes act every 16 epochs
UNTRIED = {  # what no test can run like this, and where it is tested
    "data get": "needs the network; tests/data/test_sources.py has a host of its own",
    "export": "needs the run of a program; tests/cli/test_keep.py has one",
    "predict": "needs an agent of that run; tests/cli/test_keep.py has one",
    "run --from": "needs the run of a program; tests/cli/test_keep.py has one",
    **dict.fromkeys(
        ("live init", "live run", "live status", "live predict", "live replay", "live renew", "live drop", "live add"),
        "needs a fleet of processes; tests/live/test_guide.py follows the guide",
    ),
    "shoal report fleet": "needs that fleet, too",
    "live demo": "takes three minutes; `make live` is it",
    "reproduce": "trains for hours; tests/reproduce runs each, small",
    "run --address": "needs the machines of a cluster; tests/fleet/test_actors.py joins one that it starts",
}
FREE = ("list", "data list", "network", "check")  # they train nothing


class Block(NamedTuple):
    """A block of a page: its language, or `indented`."""

    page: str
    language: str
    text: str


def pages() -> dict[str, str]:
    """The text of all pages, those that are written from the code included; notebooks have a test of their own."""
    found = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in PAGES}
    made = module(ROOT / "docs" / "generate.py").pages()
    return found | {f"docs/reference/{name}": content for name, content in made.items() if name.endswith(".md")}


TEXTS = pages()


def blocks() -> Iterator[Block]:
    """All blocks of all pages."""
    for page, text in TEXTS.items():
        for language, body in FENCE.findall(text):
            yield Block(page, language.strip(), body)
        rest = FENCE.sub("", text)
        for body in re.findall(r"(?:^    .+\n?)+", rest, re.M):
            yield Block(page, "indented", re.sub(r"^    ", "", body, flags=re.M))


BLOCKS = list(blocks())


def lines() -> list[tuple[str, str]]:
    """Every command that a page shows, each once: the page and the line."""
    found: dict[str, str] = {}
    for block in BLOCKS:
        if block.language in COMMANDS:
            for line in block.text.replace("\\\n", " ").splitlines():
                if line := line.removeprefix("$ ").strip():
                    found.setdefault(line, block.page)
    return [(page, line) for line, page in found.items()]


LINES = lines()
SHOAL = [(page, line) for page, line in LINES if line.startswith("shoal ")]
SHOWN = [pytest.param(page, line, id=f"{page}-{at}") for at, (page, line) in enumerate(SHOAL)]


def test_there_are_blocks_to_look_at() -> None:
    assert len(SHOAL) > 60
    assert {block.page for block in BLOCKS if block.language in PROGRAMS} >= {"README.md", "docs/guides/keep.md"}


def test_every_block_is_of_a_kind_that_something_runs() -> None:
    known = {*PROGRAMS, *COMMANDS, *SETTINGS, *PICTURES, *ELSEWHERE}
    assert [(block.page, block.language) for block in BLOCKS if block.language not in known] == []


# Programs


def program(page: str) -> str:
    """The blocks of a page that are programs, in their order: later ones use the names of earlier ones."""
    parts = [block.text for block in BLOCKS if block.page == page and block.language in PROGRAMS]
    return "\n\n".join(re.sub(r"^:tags:.*$", "", part, flags=re.M) for part in parts)


WITH_PROGRAMS = sorted({block.page for block in BLOCKS if block.language in PROGRAMS
                        and not block.page.startswith("docs/reference")})  # fmt: skip


def surroundings(folder: Path) -> None:
    """Files that programs of pages read."""
    generator = np.random.default_rng(0)
    rows = [f"{state},{site},{at},{generator.random()},{generator.random()}" for at in range(60)
            for state, site in [(("dry", "wet")[at % 2], ("north", "south")[at % 3 % 2])]]  # fmt: skip
    (folder / "readings.csv").write_text("\n".join(["state,site,when,warm,humid", *rows]))
    if find_spec("PIL"):
        from PIL import Image

        for agent in ("north", "south"):
            for split in ("train", "test"):
                for kind in ("cat", "dog"):
                    place = folder / "photos" / agent / split / kind
                    place.mkdir(parents=True)
                    for at in range(8):
                        Image.fromarray(generator.integers(0, 256, (8, 8), np.uint8)).save(place / f"{at}.png")


def at_most(most: int, found: re.Match[str]) -> str:
    return str(min(most, int(found[0])))


def follow(page: str, folder: Path, fewer: bool) -> None:
    """Run the programs of a page as one."""
    surroundings(folder)
    text = program(page)
    for pattern, most in FEWER.items() if fewer else ():
        text = re.sub(pattern, partial(at_most, most), text)
    file = folder / "shown.py"
    file.write_text(text, encoding="utf-8")
    done = program_in(folder, file)
    assert done.code == 0, done.out[-3000:]


@pytest.mark.parametrize("page", WITH_PROGRAMS)
def test_the_programs_of_a_page_run(page: str, tmp_path: Path) -> None:
    follow(page, tmp_path, fewer=True)


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_PROGRAMS)
def test_the_programs_of_a_page_run_as_they_stand(page: str, tmp_path: Path) -> None:
    follow(page, tmp_path, fewer=False)


# Settings files


@pytest.mark.parametrize("at", range(sum(block.language in SETTINGS for block in BLOCKS)))
def test_a_settings_file_that_is_shown_is_read(at: int, tmp_path: Path) -> None:
    block = [block for block in BLOCKS if block.language in SETTINGS][at]
    file = tmp_path / "shown.toml"
    file.write_text(block.text, encoding="utf-8")
    read(file, [])


# Commands


def parsed(line: str) -> tuple[str, dict[str, Any]]:
    """The command of a line and what it was told; what cannot be understood raises."""
    words = shlex.split(line, comments=True)[1:]
    if words in (["--version"], ["--help"]):
        return "", {}
    command: Any = get_command(app)
    context = command.make_context("shoal", list(words))
    name = ""
    while hasattr(command, "resolve_command"):
        word, command, words = command.resolve_command(context, [*context.protected_args, *context.args]
                                                       if hasattr(context, "protected_args") else words)  # fmt: skip
        name = f"{name} {word}".strip()
        context = command.make_context(word, list(words), parent=context)
    return name, context.params


@pytest.mark.parametrize(("page", "line"), SHOWN)
def test_a_command_that_is_shown_is_understood(page: str, line: str) -> None:
    name, told = parsed(line)
    file = told.get("file")
    if file is None or str(file) not in experiments():
        return
    words = list(told.get("words") or [])
    if name == "sweep":
        assert grid(file, words, [])
    else:
        read(file, words)


def test_other_commands_that_are_shown_are_there() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for page, line in LINES:
        first, *words = shlex.split(line, comments=True)
        if first == "shoal":
            continue
        assert first in ("make", "pip"), f"{page} shows `{line}`, which nothing tries"
        if first == "make":
            assert set(words) <= targets, f"{page} shows `{line}`"
        else:
            assert words[0] == "install"
            for said in re.findall(r"\[(.+)\]", line):
                assert set(said.split(",")) <= set(extras), f"{page} shows `{line}`"


@pytest.mark.parametrize("page", sorted(TEXTS))
def test_commands_within_sentences_are_there(page: str) -> None:
    """In `shoal WORD ... --option`, the command and its options exist."""
    for said in re.findall(r"`(shoal [a-z][^`]*)`", FENCE.sub("", TEXTS[page]).replace("\n", " ")):
        words = said.split()[1:]
        command: Any = get_command(app)
        while hasattr(command, "commands") and words:
            assert words[0] in command.commands, f"{page} says `{said}`"
            command = command.commands[words.pop(0)]
        known = {word for one in command.params for word in [*one.opts, *one.secondary_opts]} | {"--help"}
        asked = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert asked <= known, f"{page} says `{said}`"


def test_the_help_of_every_command_has_an_example() -> None:
    def names(command: Any, before: str = "") -> Iterator[str]:
        for word, inner in command.commands.items():
            yield from names(inner, f"{before}{word} ") if hasattr(inner, "commands") else [before + word]

    assert sorted(names(get_command(app))) == sorted(name for name, (_, said) in EXAMPLES.items() if said)
    for name, (_, said) in EXAMPLES.items():
        assert all(parsed(line)[0] == name for line in said)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the pages' commands name: finished runs, settings files, tables."""
    folder = tmp_path_factory.mktemp("home")
    before = Path.cwd()
    os.chdir(folder)
    try:
        small = [f"{key}={value}" for key, value in SMALL.items()]
        for name, words in {"modules": ("sharing=modmod", "learner.accept=-1"), "A": ()}.items():
            done = call("run", "digits", *small, *words, "--seeds", 2, "--out", f"runs/{name}")
            assert done.code == 0, done.err
        for old, new in (("A", "DIR"), ("modules", "B")):
            shutil.copytree(f"runs/{old}", f"runs/{new}")
        alone = Path("runs/A/settings.toml").read_text(encoding="utf-8")
        Path("alone.toml").write_text(alone, encoding="utf-8")
        Path("shares.toml").write_text(f'{alone}\n[[sharing]]\nmode = "recv"\n', encoding="utf-8")
        shutil.copytree(ROOT / "docs" / "results", "docs/results")
    finally:
        os.chdir(before)
    return folder


def shrunk(cells: list[Settings], stacks: int) -> list[str]:
    """`SMALL`, but nothing more than a page asks for, and still enough: epochs in which every mode acts, and an agent
    for each stack. On the digits, whose ten classes are fewer than some pages' tasks have."""
    first, small = cells[0], {}
    for key, most in SMALL.items():
        group, _, name = key.rpartition(".")
        asked = getattr(getattr(first, group) if group else first, name)
        small[key] = min(most, asked) if isinstance(asked, int) else most
    acts = [getattr(mode, "every", 0) for cell in cells for mode in cell.sharing]
    enough = max([small["learner.epochs"], *(every for every in acts if isinstance(every, int))])
    small["learner.epochs"] = min(first.learner.epochs, enough)
    small["agents"] = max(small["agents"], stacks)
    words = [f"{key}={value}" for key, value in small.items()]
    if first.dataset != "digits":
        words.append("dataset=digits")
        if not first.tasks.replacement and first.tasks.classes * small["tasks.count"] > 10:
            words.append("tasks.replacement=true")
    return [*words, "machine.threads=1"]


def smaller(line: str) -> list[str]:
    """The words of a command, so that it ends in a second or two."""
    name, told = parsed(line)
    if not name:
        return shlex.split(line, comments=True)[1:]
    words = [word for one in shlex.split(line, comments=True)[1:]
             for word in (sorted(map(str, Path().glob(one))) if "*" in one else [one])]  # fmt: skip
    for shown, here in HERE.items():
        words = [word.replace(shown, here) for word in words]
    if name in ("run", "check", "sweep", "advise", "demo"):
        file, said = Path(told.get("file") or "digits"), list(told.get("words") or [])
        cells = [cell.settings for cell in grid(file, said)] if name == "sweep" else [read(file, said)]
        small = shrunk(cells, told.get("stacks") or 0)
        try:
            read(file, [*(word for word in said if name == "run"), *small])
        except SettingsError:  # it names single agents
            small = [word for word in small if not word.startswith("agents=")]
        if name == "check":  # it trains nothing
            small = [word for word in small if word == "dataset=digits"]
        keys = {word.partition("=")[0] for word in small}
        words = [word for word in words if word.partition("=")[0] not in keys] + small
    more = {"run": ["--seeds", "1"], "check": ["--seeds", "1"], "sweep": ["--seeds", "2", "--no-page"],
            "advise": ["--seeds", "2", "--no-fit", "--candidates", "simp,modmod", "--budget", "2 MB/task"],
            "demo": ["--seeds", "1"], "compare": ["--no-page"], "transfer": ["--epochs", "1"]}  # fmt: skip
    return words + more.get(name, [])


def cheap(shown: Any) -> bool:
    """Is a command run by default?"""
    page, line = shown.values
    name = parsed(line)[0]
    return "--workers" not in line and (page == "README.md" or not name or name in FREE)


def tried(line: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, told = parsed(line)
    reports = name == "reproduce" and told["what"] == "report"
    if (name in UNTRIED or line in UNTRIED or (name == "run" and (told["address"] or told["start"]))) and not reports:
        return
    for tracker in told.get("track") or ():
        pytest.importorskip(tracker, reason=f"{tracker} is not installed")
    if "ray" in line:
        pytest.importorskip("ray", reason="ray is not installed")
    monkeypatch.chdir(home)
    done = call(*smaller(line))
    assert done.code == 0, f"{line}: {done.err}"


@pytest.mark.parametrize(("page", "line"), [one for one in SHOWN if cheap(one)])
def test_a_command_that_is_shown_runs(page: str, line: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried(line, home, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize(("page", "line"), [one for one in SHOWN if not cheap(one)])
def test_a_longer_command_that_is_shown_runs(
    page: str, line: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a home of its own: several pages show the same run."""
    tried(line, shutil.copytree(home, tmp_path / "home"), monkeypatch)
