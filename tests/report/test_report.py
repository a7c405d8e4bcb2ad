"""Reports: what is on the page, that its numbers are those of the runs, and what happens to damaged runs."""

import html
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import shoal
from shoal import units
from shoal.configure.reading import read as read_settings
from shoal.errors import UserError
from shoal.report import charts, compare, numbers, page, parts, sentences, style, traffic, watch
from shoal.report.style import Style
from shoal.runs import metrics, read
from shoal.runs.execute import carry_out, prepare
from shoal.runs.record import create
from tests.browser import many
from tests.command import DIGITS, ROOT, TINY, call, refused
from tests.conftest import SHOWN


@pytest.fixture(scope="module")
def group(shown: Path) -> compare.Group:
    """All runs of the folder."""
    runs, notes = read.gather([shown])
    assert not notes
    (found,) = compare.groups(runs)
    return found


@pytest.fixture(scope="module")
def text(group: compare.Group) -> str:
    return page.page([group], [])


@pytest.fixture
def copy(shown: Path, tmp_path: Path) -> Path:
    """Runs that a test may spoil; without checksums, as if spoilt when they were made, so that content is checked."""
    return Path(shutil.copytree(shown, tmp_path / "runs", ignore=shutil.ignore_patterns("manifest.json")))


def summary(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "summary.json").read_text()))


def words(text: str) -> str:
    """What a reader of the page sees, scripts and styles aside."""
    body = re.sub(r"<(script|style)\b.*?</\1>", " ", text, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split())


def entry(group: compare.Group, name: str) -> compare.Entry:
    return next(one for one in group.entries if one.label == name)


def rewrite(path: Path, change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    change(pl.read_parquet(path)).write_parquet(path)


# What is on the page


def test_the_numbers_are_those_of_the_summaries(group: compare.Group, shown: Path, text: str) -> None:
    for one in group.entries:
        said = summary(shown / one.run.folder.name)
        for name, key in (("final", "final_accuracy"), ("auc", "auc_normalised")):
            score = one.score(name)
            assert score.mean == pytest.approx(said[key], abs=1e-9)
            assert score.pooled == pytest.approx(said[f"{key}_se"], abs=1e-9)
            assert score.seeds == pytest.approx(said[f"{key}_se_seeds"], abs=1e-9)
            assert f"{score.mean:.2f}" in text
        assert f"{said['auc']:.2f}" in text  # in the paper's unit
        assert one.paid == pytest.approx(said["bytes_per_link_task"])
        assert (units.shown(one.paid) if one.paid else "nothing") in text
        forgotten = words(parts.metric(one, "forgetting")).replace(sentences.MINUS, "-")
        assert forgotten == f"{said['forgetting']:.2f} ± {said['forgetting_se_seeds']:.2f}"
        assert f"{said['zero_shot_others']:.2f}" in parts.metric(one, "zero_shot_others")


def test_gains_are_paired_over_seeds(group: compare.Group) -> None:
    base, recv = entry(group, "shares nothing"), entry(group, "recv")
    assert [one.base for one in group.entries] == [None, base, base]
    gain = recv.gain("final")
    assert gain is not None
    pairs = [metrics.final(one.run.accuracy)[one.run.seeds == seed].mean() for one in (recv, base) for seed in (10, 11)]
    single = 100 * (np.array(pairs[:2]) - np.array(pairs[2:]))
    assert gain.mean == pytest.approx(single.mean())
    assert gain.error == pytest.approx(abs(single[0] - single[1]) / 2)  # of two numbers, that is s / sqrt(2)
    assert gain.seeds == 2
    assert gain.error is not None
    assert gain.interval == pytest.approx((gain.mean - 12.706 * gain.error, gain.mean + 12.706 * gain.error), rel=1e-4)


def test_curves_are_those_of_the_metrics(group: compare.Group) -> None:
    run = entry(group, "recv").run
    rows = [row for row in numbers.curves(group) if row["run"] == "recv"]
    every = [row["mean"] for row in rows if row["agent"] == row["task"] == "all"]
    assert every == pytest.approx(100 * metrics.curve(run.accuracy, run.initial).mean(0), rel=1e-4)
    one = [row for row in rows if row["agent"] == "1" and row["task"] == "5"]  # counted from 1
    values = 100 * metrics.seen(run.accuracy)[run.agents == 1, 4]
    assert [row["mean"] for row in one] == pytest.approx(values.mean(0), rel=1e-4)
    assert [row["high"] - row["mean"] for row in one] == pytest.approx(metrics.error(values), abs=2e-2)
    assert run.epochs.tolist() == [0, 1, 7]  # the last label is after all epochs, of which there are six
    assert [row["epoch"] for row in one] == [0, 1, 6]


def test_the_matrix_is_the_accuracy_at_the_ends_of_tasks(group: compare.Group) -> None:
    run = entry(group, "shares nothing").run
    rows = [row for row in numbers.matrices(group) if row["agent"] == "all"]
    assert len(rows) == 6 * 7 / 2 * 5  # three runs, and two gains over the first
    base = {}
    for row in rows:
        if row["run"] == "shares nothing":
            value = 100 * run.accuracy[:, row["task"] - 1, -1, row["tested"] - 1].mean()
            base[row["task"], row["tested"]] = value
            assert row["show"] == numbers.LEVEL
            assert row["mean"] == pytest.approx(value, rel=1e-4)
    run = entry(group, "recv").run
    for row in rows:
        if row["run"] == "recv" and row["show"] == numbers.MORE:
            value = 100 * run.accuracy[:, row["task"] - 1, -1, row["tested"] - 1].mean()
            value -= base[row["task"], row["tested"]]
            assert row["mean"] == pytest.approx(value, abs=1e-2)


def test_the_network_shows_traffic_and_refused_mail(group: compare.Group, shown: Path) -> None:
    picture = traffic.pictures(group, 400, 300)
    ledger = pl.read_parquet(shown / "fedavg" / "ledger.parquet")
    edges = [row for row in picture.edges if row["run"] == "fedavg"]
    assert {(row["sender"], row["receiver"]) for row in edges} == {("0", "1"), ("1", "0")}
    sent = ledger.filter(pl.col("verdict") == "accepted")
    for row in edges:
        own = sent.filter(pl.col("sender") == int(row["sender"]))
        assert row["bytes"] == pytest.approx(int(own["bytes"].sum()) / 2 / ledger["task"].n_unique(), rel=1e-3)
        assert row["sent"] == units.shown(row["bytes"])
    assert sum(row["refused"] for row in edges) == (ledger["verdict"] == "edge at rest").sum() / 2 > 0
    assert {row["why"] for row in edges} == {"edge at rest"}
    assert not any(row["refused"] for row in picture.edges if row["run"] == "recv")
    for row in picture.agents:
        assert 0 <= row["x"] <= 400
        assert 0 <= row["y"] <= 300


def test_a_drawn_graph_has_a_picture_per_seed(tmp_path: Path) -> None:
    settings = read_settings(DIGITS, [*TINY, "agents=4", *SHOWN["fedavg"], "network=tree"])
    carry_out(prepare(settings), create(tmp_path / "tree", settings))
    (one,) = compare.groups(read.gather([tmp_path])[0])
    picture = traffic.pictures(one, 400, 300)
    assert {row["seed"] for row in picture.edges} == {"10", "11"}
    assert len(picture.edges) == 2 * 2 * 3
    page.page([one], [])


def test_modules_are_counted_by_task(group: compare.Group, shown: Path) -> None:
    trials = pl.read_parquet(shown / "vanilla" / "growth.parquet")
    rows = [row for row in numbers.grown(group) if row["run"] == "shares nothing" and row["agent"] == "all"]
    kept = sum(row["number"] for row in rows if row["outcome"] == numbers.HOME)
    assert kept == trials["kept"].sum() > 0
    assert sum(row["number"] for row in rows) == len(trials)
    assert not numbers.origins(group)


def test_the_page_says_that_modules_are_home_grown(text: str) -> None:
    assert "All modules are home-grown" in text
    assert "from another agent" not in words(text)


def test_lineage_is_shown_if_it_is_recorded(copy: Path) -> None:
    def given(table: pl.DataFrame) -> pl.DataFrame:
        table = table.with_columns(kept=pl.Series([True, *table["kept"][1:]]))  # one at least
        origin = [1 - agent if kept else -1 for agent, kept in zip(table["agent"], table["kept"], strict=True)]
        return table.with_columns(pl.Series("origin_agent", origin), pl.Series("origin_task", [2] * len(table)))

    rewrite(copy / "recv" / "growth.parquet", given)
    kept = int(pl.read_parquet(copy / "recv" / "growth.parquet")["kept"].sum())
    offers = {
        "seed": [10, 11],
        "agent": [0, 0],
        "task": [4, 4],
        "sender": [1, 1],
        "source": [2, 3],
        "score": [0.5, 0.1],
    }
    table = pl.DataFrame({**offers, "chosen": [True, False], "kept": [True, False]})
    table.write_parquet(copy / "recv" / "candidates.parquet")
    runs, notes = read.gather([copy])
    (one,) = compare.groups(runs)
    assert not notes
    assert sum(row["number"] for row in numbers.origins(one)) == kept > 0
    assert {row["outcome"] for row in numbers.grown(one) if row["run"] == "recv"} == {numbers.GIVEN, numbers.DROPPED}
    assert numbers.offers(one)[0] == {"run": "recv", "offered": 2, "chosen": 1, "kept": 1, "trials": 8}
    shown = page.page([one], notes)
    assert "Where modules came from" in shown
    chooser = shown.partition('<select id="g0-modules-run"')[2].partition("</select>")[0]
    assert '<option value="recv" selected>' in chooser  # who has modules of others is shown first
    assert "Modules from other agents" in words(shown)
    assert "All modules are home-grown" not in shown


def test_null_origins_are_home_grown(copy: Path) -> None:
    none = pl.lit(None, dtype=pl.Int64)
    rewrite(
        copy / "recv" / "growth.parquet",
        lambda table: table.with_columns(none.alias("origin_agent"), none.alias("origin_task")),
    )
    (one,) = compare.groups(read.gather([copy])[0])
    assert not numbers.origins(one)
    assert numbers.GIVEN not in {row["outcome"] for row in numbers.grown(one)}


def test_the_front_has_no_run_that_another_beats() -> None:
    points = [(0, 90), (5, 92), (5, 91), (8, 92), (9, 95), (20, 94)]
    rows = [{"run": str(at), "sent": sent, "mean": mean} for at, (sent, mean) in enumerate(points)]
    assert [row["run"] for row in numbers.front(rows)] == ["0", "1", "4"]


def test_the_page_needs_nothing_else(text: str) -> None:
    own = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!#|data:)""", own)
    assert "@import" not in own
    assert "url(" not in own
    assert "default-src 'none'" in own
    assert text.count("window.vegaEmbed=") == 1


def test_the_page_can_be_read_aloud(text: str) -> None:
    """Language, landmarks, headings, captions, labels; a browser tests the rest."""
    assert '<html lang="en">' in text
    for landmark in ("<header>", '<main id="main"', "<footer>", 'class="skip" href="#main"'):
        assert text.count(landmark) == 1
    figures = re.findall(r"<figure .*?</figure>", text, flags=re.DOTALL)
    assert len(figures) == 6
    for figure in figures:
        assert re.search(r'role="img" aria-label="[^"]{40,}"', figure)
        assert "<h3" in figure
        for ident in re.findall(r'<select id="([^"]+)"', figure):
            assert f'<label for="{ident}">' in figure
    tables = re.findall(r"<table .*?</table>", text, flags=re.DOTALL)
    assert len(tables) == 6
    assert all("<caption>" in table and 'scope="col"' in table and 'scope="row"' in table for table in tables)
    levels = [int(level) for level in re.findall(r"<h([1-6])\b", text)]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert len(re.findall(r' id="([^"]+)"', text)) == len(set(re.findall(r' id="([^"]+)"', text)))


def test_colours_have_contrast() -> None:
    def light(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def contrast(one: str, other: str) -> float:
        low, high = sorted((light(one), light(other)))
        return (high + 0.05) / (low + 0.05)

    for theme in page.COLOURS.values():
        for ground in (theme["paper"], theme["card"]):
            assert contrast(theme["ink"], ground) >= 7
            assert contrast(theme["soft"], ground) >= 4.5
            assert contrast(theme["link"], ground) >= 4.5
            for name in (*(f"s{at}" for at in range(7)), "good", "given", "none", "focus"):
                assert contrast(theme[name], ground) >= 3, (name, ground)


def test_points_of_a_cost_chart_stay_where_they_are_and_say_who_lies_on_whom(group: compare.Group) -> None:
    figure = charts.cost(group, Style(True, tuple(compare.method_order([group]))), "final")
    assert figure is not None
    assert "Offset" not in json.dumps(figure.spec)
    places = {"shares nothing": (0, 90.0), "recv": (20, 95.0), "fedavg": (50, 93.0), "fedprox": (50.5, 93.1)}
    rows = [{"run": name, "sent": sent, "mean": mean} for name, (sent, mean) in places.items()]
    assert numbers.together(rows) == [["fedavg", "fedprox"]]
    assert numbers.together(rows[:3]) == numbers.together([]) == []


def test_an_axis_of_very_different_costs_has_ticks_all_along() -> None:
    assert charts.decades(0.3, 45) == pytest.approx([0, 0.2, 0.5, 1, 2, 5, 10, 20])


def test_runs_look_different_without_colours() -> None:
    marks = [style.mark(at) for at in range(15)]
    assert len({(mark.dash, mark.shape) for mark in marks}) == 15
    assert len({mark.shape for mark in marks[:7]}) == 7
    assert len({mark.colour for mark in marks[:8]}) == 8  # the methods of the paper


def test_settings_that_differ_come_first(text: str) -> None:
    said = words(text)
    assert "Settings that differ between the runs" in said
    assert said.index("network.every") < said.index("all settings and versions")
    assert f"shoal = {shoal.__version__}" in said


def test_the_page_says_what_agents_have_in_common(text: str, shown: Path) -> None:
    said = json.loads((shown / "recv" / "data.json").read_text())["overlap"]
    numbers = f"{100 * said['iou']:.2f} {said['labels']:.2f} {said['features']:.2f}"
    assert f"mean over all pairs {numbers}" in words(text)
    first = said["pairs"][0]
    assert f"agent 0 and agent 1 {100 * first['iou']:.2f} {first['labels']:.2f}" in words(text)


def test_agents_that_predict_numbers_have_no_classes_in_common(copy: Path) -> None:
    for file in copy.glob("*/data.json"):
        file.write_text(json.dumps({**json.loads(file.read_text()), "predicts": 1, "sources": ["north", "south"]}))
    said = words(page.page(compare.groups(read.gather([copy])[0]), []))
    assert "north and south" in said
    assert "what is called accuracy here is R²" in said
    assert "distance of inputs" in said
    assert "classes in common" not in said.lower()


def test_a_few_runs_are_named_and_many_counted() -> None:
    assert sentences.some(["recv"], 3) == "recv is"
    assert sentences.some(["recv", "fedavg", "modmod"], 3) == "recv, fedavg and modmod are"
    assert sentences.some(["recv, every 2", "recv, every 3", "a<b"], 6) == "recv, every 2; recv, every 3; a&lt;b are"
    assert sentences.some(list("abcde"), 6) == "5 of 6 runs are"


def test_the_words_on_top_name_one_baseline_only_if_there_is_one(copy: Path) -> None:
    (one,) = compare.groups(read.gather([copy])[0])
    assert "Compared with agents that share nothing over the same seeds: " in sentences.headline(one)
    best = max(one.complete, key=lambda entry: entry.score("final").mean)
    if best.base is not None:
        assert " points over agents that share nothing, for " in sentences.headline(one)
    one.entries[2].base = one.entries[1]
    assert "Compared with its baseline over the same seeds: " in sentences.headline(one)


def test_commands_in_remarks_look_like_commands() -> None:
    said = sentences.remarks([read.Note("runs/a", "unfinished; `shoal resume <a>` finishes it", False)])
    assert "unfinished; <code>shoal resume &lt;a&gt;</code> finishes it." in said


KINDS = """
[[kinds]]
name = "flat"
agents = [{agents}]
model = "mlp"
"""


@pytest.mark.parametrize(
    ("agents", "model"), [("1", "rest (modular-mlp), flat (mlp)"), ("0, 1", "flat (mlp)"), ("1, 0.5", None)]
)
def test_a_fleet_of_several_kinds_is_named_by_them(copy: Path, agents: str, model: str | None) -> None:
    with (copy / "recv" / "settings.toml").open("a") as file:
        file.write(KINDS.format(agents=agents))
    runs, notes = read.gather([copy])
    found = compare.groups(runs)
    if model is None:
        assert notes[0].why == "settings.toml has kinds without a name, a model or agents"
        assert len(found) == 1
        return
    assert {group.model: len(group.entries) for group in found} == {model: 1, "modular-mlp": 2}
    assert f"{model}, protocol fair" in words(page.page(found, notes))
    assert all(re.fullmatch(r"[\w.-]+", group.name) for group in found)


def test_names_tell_runs_apart(copy: Path) -> None:
    for name, every in (("a", 3), ("b", 5)):
        shutil.copytree(copy / "recv", copy / name)
        file = copy / name / "settings.toml"
        file.write_text(file.read_text().replace("every = 2", f"every = {every}"))
    shutil.copytree(copy / "fedavg", copy / "again")  # the same settings, other results
    rewrite(copy / "again" / "accuracy.parquet", lambda table: table.with_columns(pl.col("accuracy") / 2))
    (one,) = compare.groups(read.gather([copy])[0])
    names = {entry.label for entry in one.entries}
    assert names == {
        "shares nothing",
        "recv, every 2",
        "recv, every 3",
        "recv, every 5",
        "fedavg, again",
        "fedavg, fedavg",
    }


def test_the_same_folder_twice_is_one_run(shown: Path) -> None:
    runs, _ = read.gather([shown / "recv", shown, shown / "recv"])
    assert len(runs) == 3


def test_without_agents_alone_the_first_run_is_the_baseline(shown: Path) -> None:
    (one,) = compare.groups(read.gather([shown / "recv", shown / "fedavg"])[0])
    first, second = one.entries
    assert (first.label, first.base, second.base) == ("recv", None, first)


def test_datasets_and_models_are_never_mixed(copy: Path) -> None:
    for name, old, new in (("recv", 'dataset = "digits"', 'dataset = "mnist"'), ("fedavg", "modular-mlp", "mlp")):
        file = copy / name / "settings.toml"
        file.write_text(file.read_text().replace(old, new))
    found = compare.groups(read.gather([copy])[0])
    assert [one.name for one in found] == ["digits-mlp-fair", "digits-modular-mlp-fair", "mnist-modular-mlp-fair"]
    assert all(len(one.entries) == 1 and one.entries[0].base is None for one in found)
    text = page.page(found, [])
    assert text.count('<section class="group"') == 3
    assert 'aria-label="Groups of runs"' in text


def test_one_seed_has_no_errors(tmp_path: Path) -> None:
    for name in ("vanilla", "fedavg"):
        settings = read_settings(DIGITS, [*TINY, "seeds=1", *SHOWN[name]])
        carry_out(prepare(settings), create(tmp_path / name, settings))
    (one,) = compare.groups(read.gather([tmp_path])[0])
    text = page.page([one], [])
    assert "There is one seed, so there are no bands." in text
    assert "nan" not in words(text).lower()


def test_a_run_of_initial_tasks_alone_has_no_curve_and_no_area(tmp_path: Path, shown: Path) -> None:
    for name in ("one", "two"):
        settings = read_settings(DIGITS, [*TINY, "tasks.count=4"])
        carry_out(prepare(settings), create(tmp_path / name, settings))
    for places in ([tmp_path], [tmp_path, shown]):  # alone, and beside others that do have them
        found = compare.groups(read.gather(places)[0])
        assert "nan" not in words(page.page(found, [])).lower()


def test_runs_that_learn_other_tasks_stand_apart(copy: Path) -> None:
    settings = read_settings(DIGITS, [*TINY, "tasks.train=8"])
    carry_out(prepare(settings), create(copy / "other", settings))
    found = compare.groups(read.gather([copy])[0])
    assert sorted(len(group.entries) for group in found) == [1, 3]
    assert {group.title.rpartition(", ")[2] for group in found} == {"tasks.train 8", "tasks.train 16"}
    assert len({group.name for group in found}) == 2


def test_the_same_run_in_two_folders_is_shown_once(copy: Path) -> None:
    shutil.copytree(copy / "recv", copy / "twin")
    runs, (note,) = read.gather([copy])
    assert len(runs) == 3
    assert (note.folder, note.out) == (str(copy / "twin"), True)
    assert note.why == f"it has the same settings and results as {copy / 'recv'}"


def test_a_folder_may_have_any_name(copy: Path, tmp_path: Path) -> None:
    strange = copy / "a\udcff & <b>"
    shutil.copytree(copy / "recv", strange)
    done = call("report", copy, "--out", tmp_path / "page.html")
    assert done.code == 0, done.err
    assert "&amp; &lt;b&gt;" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_monolithic_nets_have_no_modules_to_show(tmp_path: Path) -> None:
    settings = read_settings(DIGITS, [*TINY, "model=mlp"])
    carry_out(prepare(settings), create(tmp_path / "mlp", settings))
    (one,) = compare.groups(read.gather([tmp_path])[0])
    assert {figure.name for figure in charts.figures(one, Style(True, ("shares nothing",)))} == {
        "learning-curves",
        "accuracy-matrix",
    }


# The command


def test_the_command_writes_one_page(shown: Path, tmp_path: Path) -> None:
    done = call("report", shown, "--out", tmp_path / "page.html")
    assert done.code == 0, done.err
    assert "3 runs in" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    assert 0.5e6 < (tmp_path / "page.html").stat().st_size < 2e6


def test_the_same_runs_give_the_same_page(shown: Path, text: str) -> None:
    assert page.page(compare.groups(read.gather([shown])[0]), []) == text


def test_figures_are_written_in_three_formats(group: compare.Group, tmp_path: Path) -> None:
    written = page.draw([group], tmp_path / "figures")
    starts = {"png": b"\x89PNG", "svg": b"<svg", "pdf": b"%PDF"}
    names = {"learning-curves", "accuracy-matrix", "gain-matrix", "network", "modules"}
    names |= {"final-against-bytes", "auc-against-bytes"}
    assert {path.stem for path in written} == names
    for path in written:
        content = path.read_bytes()
        assert content.startswith(starts[path.suffix[1:]])
        assert b"var(--" not in content
    assert len(written) == len(names) * 3
    curves = (tmp_path / "figures" / "learning-curves.svg").read_text()
    assert all(name in curves for name in ("shares nothing", "recv", "fedavg"))
    matrix = (tmp_path / "figures" / "accuracy-matrix.svg").read_text()
    assert len(re.findall('aria-roledescription="text mark"', matrix)) <= 3 * 21  # a panel has its own run's cells


def test_a_report_does_not_need_torch(shown: Path, tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None; from shoal.cli.commands import app; "
        f"app(['report', {str(shown)!r}, '--out', {str(tmp_path / 'page.html')!r}])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "page.html").exists()


@pytest.mark.parametrize("missing", ["altair", "vl_convert"])
def test_without_the_extra_the_command_says_what_to_install(
    missing: str, shown: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.report.find_spec", lambda name: None if name == missing else name)
    done = call("report", shown, "--out", tmp_path / "page.html")
    assert done.code == 2
    assert "`pip install altair vl-convert-python`" in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_a_sentence(shown: Path, tmp_path: Path) -> None:
    assert call("report", shown, "--out", tmp_path / "new" / "page.html").code == 0
    (tmp_path / "file").write_text("")
    done = call("report", shown, "--out", tmp_path / "file" / "page.html")
    assert done.code == 2
    assert "cannot write" in done.err
    done = call("report", shown, "--out", tmp_path / "page.html", "--figures", tmp_path / "file")
    assert done.code == 2
    assert "give --figures another place" in done.err


# Runs that are not whole


def notes_of(folder: Path) -> list[read.Note]:
    return read.gather([folder])[1]


def spoil(folder: Path, how: str) -> None:
    """Damage a run directory."""
    files = {name: folder / f"{name}.parquet" for name in ("accuracy", "growth", "ledger")}
    match how:
        case "truncated accuracy" | "truncated growth" | "truncated ledger":
            file = files[how.split()[1]]
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
        case "empty accuracy":
            files["accuracy"].write_bytes(b"")
        case "no accuracy":
            files["accuracy"].unlink()
        case "no rows":
            rewrite(files["accuracy"], lambda table: table.head(0))
        case "lost column":
            rewrite(files["accuracy"], lambda table: table.drop("tested"))
        case "other type":
            rewrite(files["accuracy"], lambda table: table.with_columns(pl.col("task").cast(pl.String)))
        case "twice":
            rewrite(files["accuracy"], lambda table: pl.concat([table, table.tail(1)]))
        case "beyond":
            rewrite(files["accuracy"], lambda table: table.with_columns(pl.col("accuracy") * 3))
        case "not a number":
            rewrite(files["accuracy"], lambda table: table.with_columns(accuracy=float("nan")))
        case "lost lane":
            rewrite(files["accuracy"], lambda table: table.filter(pl.col("agent") == 0))
        case "joint start":
            rewrite(files["accuracy"], lambda table: table.with_columns(agent=pl.lit(-1)))
        case "broken settings":
            (folder / "settings.toml").write_text("dataset = ")
        case "short settings":
            (folder / "settings.toml").write_text('dataset = "digits"\nmodel = "mlp"\n')
        case "broken summary":
            (folder / "summary.json").write_text('{"final')
        case "other summary":
            (folder / "summary.json").write_text('{"final_accuracy": 12.5}')
        case "no summary":
            (folder / "summary.json").unlink()
        case "broken about":
            (folder / "about.json").write_text("[]")
        case "other version":
            (folder / "about.json").write_text('{"shoal": "0.0.1", "format": 1}')
        case "newer format":
            (folder / "about.json").write_text('{"shoal": "9.0.0", "format": 99}')
        case "unfinished":
            (folder / "summary.json").unlink()
            rewrite(files["accuracy"], lambda table: table.filter(pl.col("task") < 5))
        case "strange growth":
            rewrite(files["growth"], lambda table: table.with_columns(agent=pl.lit(10**15)))
        case "strange ledger":
            rewrite(files["ledger"], lambda table: table.with_columns(receiver=pl.lit(-7)))
        case "no ledger":
            files["ledger"].unlink()
        case "broken data":
            (folder / "data.json").write_text('{"overlap')
        case "other data":
            (folder / "data.json").write_text('{"overlap": {"pairs": [3]}, "sources": []}')
        case _:
            raise AssertionError(how)


LEFT_OUT = {
    "truncated accuracy": "cannot read accuracy.parquet",
    "empty accuracy": "cannot read accuracy.parquet",
    "no accuracy": "accuracy.parquet is not there",
    "no rows": "nothing has been measured yet",
    "lost column": "no column `tested`",
    "other type": "column `task` of another type",
    "twice": "the same measurement twice",
    "beyond": "outside of 0 to 1",
    "not a number": "outside of 0 to 1",
    "lost lane": "has 2 agents of all seeds, settings.toml 4",
    "joint start": "only the common start",
    "broken settings": "cannot read settings.toml",
    "short settings": "no whole number agents",
    "newer format": "format 99, which a newer shoal wrote",
}
KEPT = {
    "truncated growth": "; what it held is not shown",
    "truncated ledger": "cannot read ledger.parquet",
    "no ledger": "ledger.parquet is not there",
    "strange growth": "growth.parquet has a column `agent` with numbers that the run does not have",
    "strange ledger": "ledger.parquet has a column `receiver` with numbers that the run does not have",
    "broken summary": "cannot read summary.json",
    "other summary": "summary.json says final accuracy 12.5",
    "no summary": "was not finished properly",
    "broken about": "it holds no JSON object",
    "other version": "made by shoal 0.0.1",
    "unfinished": "5 of 6 tasks are learned",
    "broken data": "cannot read data.json",
    "other data": "data.json does not say what agents have in common",
}


@pytest.mark.parametrize("how", [*LEFT_OUT, *KEPT])
def test_damaged_runs_are_named_and_the_rest_is_shown(how: str, copy: Path) -> None:
    spoil(copy / "recv", how)
    runs, notes = read.gather([copy])
    ((folder, why, out),) = notes
    assert folder == str(copy / "recv")
    assert {**LEFT_OUT, **KEPT}[how] in why
    assert out == (how in LEFT_OUT) == (len(runs) == 2)
    text = page.page(compare.groups(runs), notes)
    said = words(text)
    assert f"{folder} is left out: " in said if out else f"{folder} : " in said
    assert " ".join(why.replace("`", " ").split()) in said
    top = folder if out else "1 remark on these runs"  # which stands below
    assert said.index(top) < said.index("Learning curves")


@pytest.mark.parametrize("how", LEFT_OUT)
def test_if_nothing_is_left_nothing_is_written(how: str, copy: Path, tmp_path: Path) -> None:
    spoil(copy / "recv", how)
    done = call("report", copy / "recv", "--out", tmp_path / "page.html")
    assert done.code == 2
    assert "there is nothing to report" in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert not (tmp_path / "page.html").exists()


def test_folders_that_are_no_runs_are_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    for name, why in (("nowhere", "no such folder"), ("empty", "no settings.toml"), ("file", "is a file")):
        with pytest.raises(UserError, match=why):
            read.gather([tmp_path / name])
    with pytest.raises(UserError, match=r"and 2 more"):
        read.gather([tmp_path / name for name in ("nowhere", "empty", "file")])


def test_an_unfinished_run_has_curves_of_its_tasks_and_no_final_numbers(copy: Path) -> None:
    spoil(copy / "recv", "unfinished")
    (one,) = compare.groups(read.gather([copy])[0])
    assert [entry.label for entry in one.complete] == ["shares nothing", "fedavg"]
    tasks = {row["task"] for row in numbers.curves(one) if row["run"] == "recv"}
    assert tasks == {"5"}
    assert max(row["task"] for row in numbers.matrices(one) if row["run"] == "recv") == 5
    assert "Not finished, so with lines for single tasks only: recv." in words(page.page([one], []))
    spoil(copy / "vanilla", "unfinished")
    spoil(copy / "fedavg", "unfinished")
    runs, notes = read.gather([copy])
    assert "No run of this group is finished yet" in page.page(compare.groups(runs), notes)


def test_a_lost_ledger_leaves_the_cost_of_the_summary(copy: Path) -> None:
    before = entry(compare.groups(read.gather([copy])[0])[0], "recv").paid
    spoil(copy / "recv", "truncated ledger")
    (one,) = compare.groups(read.gather([copy])[0])
    assert entry(one, "recv").paid == pytest.approx(before)
    spoil(copy / "recv", "broken summary")
    (one,) = compare.groups(read.gather([copy])[0])
    assert np.isnan(entry(one, "recv").paid)
    assert "recv" not in {row["run"] for row in numbers.costs(one, "final")}
    assert "nan" not in words(page.page([one], [])).lower()


def test_damage_anywhere_in_a_table_is_never_a_crash(copy: Path) -> None:
    """Random bytes in a Parquet file can make its reader panic, which is no ordinary exception."""
    generator, drawn = np.random.default_rng(0), set[tuple[str, ...]]()
    for name in ("accuracy", "growth", "ledger"):
        file = copy / "recv" / f"{name}.parquet"
        whole = file.read_bytes()
        for _ in range(10):
            broken = bytearray(whole)
            for place in generator.integers(len(broken), size=4):
                broken[place] = generator.integers(256)
            file.write_bytes(bytes(broken))
            runs, notes = read.gather([copy])
            assert len(runs) >= 2
            found = tuple(note.why for note in notes)
            if not found or found not in drawn:  # what was found before has had its page
                page.page(compare.groups(runs), notes)
                drawn.add(found)
        file.write_bytes(whole)


def test_names_cannot_break_the_page(copy: Path) -> None:
    evil = "</script><script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
    file = copy / "recv" / "settings.toml"
    file.write_text(file.read_text().replace('mode = "recv"', f"mode = {json.dumps(evil)}"))
    file = copy / "vanilla" / "about.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "command": evil}))
    runs, notes = read.gather([copy])
    text = page.page(compare.groups(runs), notes)
    assert "<script>alert" not in text
    assert "<img" not in re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    assert text.count("</script>") == 3


# Contracts with the rest


def test_what_never_left_its_sender_is_what_the_post_says() -> None:
    from shoal.letters.mail import UNSENT

    assert compare.UNSENT == UNSENT


def test_the_command_line_brings_nothing_heavy() -> None:
    heavy = ("altair", "polars", "torch")
    code = f"import sys; import shoal.cli.commands; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Size


def test_fifteen_methods_of_sixty_four_lanes_are_a_small_page(tmp_path: Path) -> None:
    many(tmp_path, methods=15, agents=8, seeds=8, tasks=10)
    runs, _ = read.gather([tmp_path])
    text = page.page(compare.groups(runs), [])
    assert len(text.encode()) < 3e6


def test_many_agents_are_drawn_as_groups_and_found_by_typing(tmp_path: Path) -> None:
    many(tmp_path, methods=1, agents=300, seeds=1, tasks=6)
    (one,) = compare.groups(read.gather([tmp_path])[0])
    picture = traffic.pictures(one, 400, 300)
    assert picture.size == 19
    assert [row["agent"] for row in picture.agents] == [str(first) for first in range(0, 300, 19)]
    assert 0 < len(picture.edges) <= 16 * 15
    assert {row["sender"] for row in picture.edges} <= {f"{at}-{min(at + 18, 299)}" for at in range(0, 300, 19)}
    sent = sum(mail["bytes"] for mail in traffic.posted(one.entries[0].run.tables["ledger"], 1, {}).values())
    assert sum(row["bytes"] for row in picture.edges) == pytest.approx(sent, rel=0.1)
    text = page.page([one], [])
    assert "A circle is 19 agents" in text
    assert '<option value="299"></option></datalist>' in text
    assert "agent 299</option>" not in text
    assert len(text.encode()) < 5e6


def test_few_agents_are_drawn_each() -> None:
    assert traffic.grouping([100, 8], [600, 3]) == 1
    assert traffic.grouping([101], [3]) == 7
    assert traffic.grouping([2000], [4000]) == 125
    assert traffic.grouping([30], [870]) == 2
    assert [traffic.named(group, 126, 1999) for group in (0, 15)] == ["0-125", "1890-1999"]


# The page while runs train


def test_the_page_is_written_again_until_all_runs_are_finished(copy: Path, tmp_path: Path) -> None:
    """The records of a run are cut to some tasks, and grow while the page is watched."""
    (folder,) = copy.glob("recv*")
    whole = (folder / "accuracy.parquet").read_bytes()
    said: list[str] = []
    pages: list[str] = []
    seconds = iter(range(0, 1000, 60))
    out = tmp_path / "page.html"

    def cut(tasks: int) -> None:
        (folder / "accuracy.parquet").write_bytes(whole)
        rewrite(folder / "accuracy.parquet", lambda table: table.filter(pl.col("task") < tasks))

    def sleep(every: float) -> None:
        pages.append(out.read_text(encoding="utf-8"))
        cut(4 + len(pages))

    cut(4)
    watch.watch([copy], out, said.append, sleep=sleep, clock=lambda: float(next(seconds)))
    assert said == [
        "2 of 3 runs finished, 78 % of all tasks learned",
        "2 of 3 runs finished, 89 % of all tasks learned, about 60 s left",
        f"3 runs in {out}",
    ]
    for text in pages:
        assert '<meta http-equiv="refresh" content="10">' in text
    assert "Still learning:</strong> 2 of 3 runs finished, 89 % of all tasks learned, about 60 s left." in pages[1]
    last = out.read_text(encoding="utf-8")
    assert "refresh" not in last.partition("</head>")[0]
    assert "Still learning" not in last


def test_a_run_without_records_is_waited_for_and_a_folder_without_a_run_is_not(copy: Path, tmp_path: Path) -> None:
    (folder,) = copy.glob("recv*")
    whole = (folder / "accuracy.parquet").read_bytes()
    (folder / "accuracy.parquet").unlink()
    said: list[str] = []

    def sleep(every: float) -> None:
        (folder / "accuracy.parquet").write_bytes(whole)

    watch.watch([folder], tmp_path / "page.html", said.append, sleep=sleep)
    assert said[0].startswith("waiting for the first task to end")
    refused(
        call("report", "--watch", tmp_path / "nothing", "--out", tmp_path / "page.html"), "there is nothing to report"
    )


def test_times_are_said_as_people_say_them() -> None:
    assert [watch.spoken(seconds) for seconds in (5, 600, 9000)] == ["5 s", "10 min", "2.5 h"]
