"""Files appear whole or not at all, and never in the place of what somebody else wrote."""

import io
import os
from pathlib import Path

import pytest
from rich.table import Table

from shoal.console import Plain, visible
from shoal.errors import UserError
from shoal.files import begins, columns, save
from shoal.study.cells import read_csv, write_csv
from tests.command import call, refused

pytestmark = pytest.mark.usefixtures("nowhere")
OURS = begins("<title>ours")


def test_a_file_is_written_over_by_its_own_kind_alone() -> None:
    file = Path("deep/page.html")
    assert save(file, "<title>ours</title> 1", "move", OURS).read_text(encoding="utf-8").endswith("1")
    assert save(file, "<title>ours</title> 2", "move", OURS).read_text(encoding="utf-8").endswith("2")
    file.write_text("a thesis", encoding="utf-8")
    with pytest.raises(UserError, match=r"shoal did not write it; move it away, or choose another name"):
        save(file, "<title>ours</title> 3", "move", OURS)
    assert file.read_text(encoding="utf-8") == "a thesis"
    assert [path.name for path in file.parent.iterdir()] == ["page.html"]


def test_an_empty_file_is_nobodys() -> None:
    Path("page.html").touch()
    save(Path("page.html"), "<title>ours", "move", OURS)
    assert Path("page.html").read_text(encoding="utf-8") == "<title>ours"


def test_what_is_left_aside_is_never_followed() -> None:
    Path("victim").write_text("precious", encoding="utf-8")
    Path("page.html.part").symlink_to("victim")
    save(Path("page.html"), "new", "move")
    assert Path("victim").read_text(encoding="utf-8") == "precious"
    assert not Path("page.html").is_symlink()
    assert not Path("page.html.part").is_symlink()


@pytest.mark.parametrize("name", ["", ".", "/", "folder", "a" * 5000, "a\0b", "/dev/null"])
def test_what_cannot_be_a_file_is_one_sentence(name: str) -> None:
    Path("folder").mkdir()
    with pytest.raises(UserError, match="cannot write"):
        save(Path(name), "new", "move")
    assert [path.name for path in Path().iterdir()] == ["folder"]


def test_a_part_that_cannot_be_removed_is_one_sentence() -> None:
    Path("page.html.part/inner").mkdir(parents=True)
    with pytest.raises(UserError, match=r"cannot write page.html: .*; move"):
        save(Path("page.html"), "new", "move")


def test_a_file_reaches_the_disk_before_its_name_and_then_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    sync = os.fsync

    def watch(handle: int) -> None:
        seen.append((Path(f"/proc/self/fd/{handle}").readlink().name, Path("page.html").exists()))
        sync(handle)

    monkeypatch.setattr("os.fsync", watch)
    save(Path("page.html"), "new", "move")
    assert seen == [("page.html.part", False), (Path().resolve().name, True)]


def test_pictures_and_tables_of_others_stay() -> None:
    Path("ring.svg").write_text("<svg>mine</svg>", encoding="utf-8")
    refused(call("network", "ring", "--out", "ring.svg"), "ring.svg is there already, and shoal did not write it")
    assert Path("ring.svg").read_text(encoding="utf-8") == "<svg>mine</svg>"
    assert call("network", "ring", "--out", "other.svg").code == 0
    assert call("network", "ring", "--out", "other.svg").code == 0
    Path("compare.csv").write_text("name,salary\n", encoding="utf-8")
    refused(call("compare", "digits", "--out", "."), "compare.csv is there already")
    refused(call("report", "nowhere", "--out", "compare.csv"), "compare.csv is there already")
    assert Path("compare.csv").read_text(encoding="utf-8") == "name,salary\n"


def test_a_word_is_no_formula_and_a_number_stays_one() -> None:
    row = {"run": '=HYPERLINK("http://evil")', "at": "@x", "plus": "+x", "less": "-1.5", "gain": -2.25, "tab": "\tx"}
    file = write_csv(Path("mine.csv"), [row])
    written = file.read_text(encoding="utf-8").splitlines()[1]
    assert written == '"\'=HYPERLINK(""http://evil"")",\'@x,\'+x,-1.5,-2.25,\'\tx'
    assert read_csv(file) == [row | {"less": -1.5}]


def test_a_table_takes_the_place_of_one_like_it() -> None:
    write_csv(Path("mine.csv"), [{"a": 1, "b": 2}])
    write_csv(Path("mine.csv"), [{"b": 1, "c": 2}])
    with pytest.raises(UserError, match="shoal did not write it"):
        write_csv(Path("mine.csv"), [{"d": 1, "e": 2}])
    assert columns("a", "b")("a,b\n")
    assert not columns("a", "b", "c")("a,x\n")


def test_control_characters_are_shown_and_never_sent() -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\r\x9b31m\u202efdp"
    for part in (evil, Table(evil)):
        stream = io.StringIO()
        Plain(file=stream, width=200, force_terminal=True).print(part, highlight=False)
        assert "\\x1b[2J" in stream.getvalue()
        assert "\\x9b31m" in stream.getvalue()
        assert not set("\x07\r\x9b\u202e") & set(stream.getvalue())
        assert "\x1b[2J" not in stream.getvalue()
    assert visible("a\nb") == "a\nb"


@pytest.mark.parametrize(
    "words",
    [
        ["run", "digits", "--\x1b[31mred"],
        ["\x1b[31mred"],
        ["check", "digits", "ag\x1b[31mnets=3"],
        ["check", "di\x1b[31mgits"],
        ["report", "no\x1b[31mwhere"],
        ["network", "./no\x1b[31m.where"],
        ["compare", "no\nwh\x1b[31mere"],
    ],
)
def test_words_with_control_characters_do_nothing_to_a_terminal(words: list[str]) -> None:
    done = call(*words)
    assert done.code == 2
    assert "\x1b" not in done.out + done.err
    assert "\\x1b[31m" in done.err


def test_a_graph_file_cannot_speak_to_the_terminal() -> None:
    Path("evil\x1b[2J.txt").write_text("0 \x1b[2J\n", encoding="utf-8")
    Path("mine.toml").write_text('[network]\ngraph = "./evil\\u001b[2J.txt"\n', encoding="utf-8")
    assert "\x1b" not in refused(call("network", "mine.toml"), "\\x1b[2J")
