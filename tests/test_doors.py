"""Doors: how what is not built in comes into a table."""

import subprocess
import sys
from pathlib import Path

import pytest

from shoal import data
from shoal.configure.reading import override, read, resolve
from shoal.data import DATASETS, DataError
from shoal.doors import Table, is_a
from shoal.errors import SettingsError
from shoal.network.edges import edges
from shoal.network.graphs import GRAPHS
from shoal.settings.groups import Network
from shoal.settings.writing import toml
from shoal.sharing.combine import RULES
from shoal.sharing.modes import MODES
from shoal.sharing.scores import SCORES
from shoal.sharing.uniform import Uniform
from tests.command import DIGITS, TINY, call, refused

GOSSIP = '''
from typing import Literal

import networkx as nx

from shoal.data.digits import DIGITS
from shoal.sharing.scores import Metric
from shoal.sharing.uniform import Uniform


class Gossip(Uniform):
    """A mode of somebody else."""

    mode: Literal["gossip"] = "gossip"
    topics: int = 3


def path(n, p, generator):
    return nx.path_graph(n)


constant = Metric(lambda pair: 1.0, "classes")
'''


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that can be imported, and that nothing has announced."""
    (tmp_path / "gossiping.py").write_text(GOSSIP)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "gossiping", raising=False)
    return "gossiping"


def announce(folder: Path, group: str, *points: str) -> None:
    """Make a folder look like one that a package was installed into."""
    about = folder / "gossip-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: gossip\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("\n".join([f"[{group}]", *points]) + "\n")


def small() -> Table[type]:
    return Table("number", {"one": int, "two": float}, "shoal.numbers", is_a(object), also=("none",))


def test_a_table_is_a_mapping_of_what_is_built_in() -> None:
    table = small()
    assert (list(table), len(table), table["two"], dict(table)) == (
        ["one", "two"],
        2,
        float,
        {"one": int, "two": float},
    )
    assert "three" not in table
    with pytest.raises(KeyError):
        table["three"]


def test_what_is_added_is_found() -> None:
    table = small()
    assert table.add("three", complex) is complex
    assert (list(table), table.find("three")) == (["one", "two", "three"], complex)


def test_a_name_that_is_taken_cannot_be_added() -> None:
    with pytest.raises(SettingsError, match=r"there is a number `two` already; choose another name"):
        small().add("two", complex)


def test_an_unknown_name_gets_what_is_allowed() -> None:
    with pytest.raises(SettingsError) as caught:
        small().find("tow")
    assert str(caught.value) == (
        "there is no number `tow`; did you mean `two`? allowed: one, two, none, or one of yours as package.module:Name"
    )
    for word, hint in (("nnone", "none"), ("none", "one")):  # what is allowed elsewhere is proposed, but never itself
        with pytest.raises(SettingsError, match=rf"there is no number `{word}`; did you mean `{hint}`\? allowed: one"):
            small().find(word)


def test_package_module_name_is_imported() -> None:
    table = small()
    assert table.find("fractions:Fraction").__name__ == "Fraction"
    assert list(table) == ["one", "two"]


@pytest.mark.parametrize(
    ("door", "message"),
    [
        ("no_such_module:X", "importing `no_such_module` fails with ModuleNotFoundError: No module named"),
        ("fractions:Fractoin", "because the module `fractions` has no `Fractoin`"),
        ("fractions:gcd.x", "because the module `fractions` has no `gcd.x`"),
        ("math:pi", "`math:pi` is no number, but 3.14"),
        ("broken_plugin:X", "importing `broken_plugin` fails with AttributeError: oh no; install it, mend it"),
    ],
)
def test_a_door_that_leads_nowhere_gets_a_sentence(
    door: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_plugin.py").write_text("raise AttributeError('oh no\\nmore')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SettingsError) as caught:
        small().find(door)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_installed_package_brings_its_own(plugin: str, tmp_path: Path) -> None:
    announce(tmp_path, "shoal.modes", f"gossip = {plugin}:Gossip")
    assert "gossip" in MODES
    assert list(MODES)[-1] == "gossip"
    assert len(MODES) == len(MODES.entries) + 1
    assert plugin not in sys.modules  # until it is used
    settings = resolve({"sharing": [{"mode": "gossip", "topics": 5}]})
    assert settings.model_dump()["sharing"][0]["topics"] == 5
    assert 'mode = "gossip"' in toml(settings)
    with pytest.raises(SettingsError, match="there is a sharing mode `gossip` already"):
        MODES.add("gossip", Uniform)


def test_an_installed_package_cannot_take_a_name(plugin: str, tmp_path: Path) -> None:
    announce(tmp_path, "shoal.modes", f"recv = {plugin}:Gossip")
    with pytest.raises(SettingsError, match=r"`gossiping:Gossip`, installed with gossip, has the name of .* `recv`"):
        resolve({"sharing": "recv"})


def test_an_installed_package_that_is_broken_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    announce(tmp_path, "shoal.graphs", "path = gone:path")
    with pytest.raises(SettingsError, match="the graph `gone:path` cannot be used, because importing `gone` fails"):
        resolve({"network": "path"})
    assert resolve({"network": "ring"}).network.graph == "ring"


def test_a_mode_is_named_in_toml_and_reads_back(plugin: str, tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(f'[[sharing]]\nmode = "{plugin}:Gossip"\ntopics = 7\n')
    settings = read(file, [f"sharing.{plugin}:Gossip.every=3"])
    (mode,) = settings.sharing
    assert (type(mode).__name__, mode.mode, mode.every) == ("Gossip", "gossip", 3)
    file.write_text(toml(settings))
    assert read(file, trust=True) == settings
    assert settings.identity() != resolve({"sharing": [{"mode": "uniform", "every": 3}]}).identity()


def test_a_mode_is_named_on_the_command_line(plugin: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = [f"sharing={plugin}:Gossip", "sharing.every=3", "sharing.topics=4", f"network={plugin}:path"]
    done = call("run", str(DIGITS), *TINY, *words, "--out", out)
    assert done.code == 0, done.err
    assert f'mode = "{plugin}:Gossip"' in (out / "settings.toml").read_text()
    assert "shared by gossip: " in done.out


def test_the_command_line_finds_what_lies_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text(
        "from torch import nn\n\nclass Net(nn.Flatten):\n    def __init__(self):\n        super().__init__()\n"
    )
    words = [
        sys.executable,
        "-P",
        "-m",
        "shoal",
        "run",
        str(DIGITS),
        *TINY,
        "model=beside:Net",
        "sharing=none",
        "--out",
        "out",
    ]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "summary.json").exists()


def test_a_mode_that_is_none_exits_with_a_sentence(plugin: str) -> None:
    refused(call("check", DIGITS, f"sharing={plugin}:path"), "`gossiping:path` is no sharing mode")
    refused(call("check", DIGITS, f"sharing={plugin}:Gossp"), "the module `gossiping` has no `Gossp`")


def test_a_setting_of_a_mode_of_somebody_else_is_checked(plugin: str) -> None:
    with pytest.raises(SettingsError, match=r"did you mean `sharing\.gossiping:Gossip\.topics`\?"):
        resolve(override({}, [f"sharing={plugin}:Gossip", "sharing.topisc=4"]))


def test_a_graph_is_named(plugin: str) -> None:
    network = resolve({"network": f"{plugin}:path"}).network
    assert [edge[:2] for edge in edges(network, 3, 0)] == [(1, 0), (0, 1), (2, 1), (1, 2)]
    with pytest.raises(SettingsError, match="has no `pth`"):
        edges(Network(graph=f"{plugin}:pth"), 3, 0)


def test_a_dataset_is_named(plugin: str) -> None:
    assert len(data.load(f"{plugin}:DIGITS").labels) == len(data.load("digits").labels)
    with pytest.raises(SettingsError, match="`gossiping:path` is no dataset"):
        data.load(f"{plugin}:path")
    with pytest.raises(DataError, match="unknown dataset `gossip`"):
        data.load("gossip")


def test_a_score_is_named_or_one_line_in_the_table(plugin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve({"sharing": [{"mode": "modmod", "metric": f"{plugin}:constant"}]}).sharing
    monkeypatch.setitem(SCORES.entries, "constant", SCORES["iou"])
    assert resolve({"sharing": [{"mode": "modmod", "metric": "constant"}]}).sharing
    with pytest.raises(SettingsError, match=r"there is no metric `leap`; did you mean `leep`\? allowed: iou, leep"):
        resolve({"sharing": [{"mode": "modmod", "metric": "leap"}]})


def test_every_table_has_a_door_of_its_own() -> None:
    groups = [table.group for table in (MODES, GRAPHS, DATASETS, SCORES, RULES)]
    assert groups == ["shoal.modes", "shoal.graphs", "shoal.datasets", "shoal.scores", "shoal.rules"]
