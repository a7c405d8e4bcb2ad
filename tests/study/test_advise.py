"""What to share for a budget."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import shoal
from shoal import data
from shoal.agents.worlds import worlds
from shoal.configure.reading import read
from shoal.errors import SettingsError, Stopped
from shoal.runs.paired import Gain, Scores, holm
from shoal.sharing.simp import Simp
from shoal.study import advise, sweep
from shoal.study.advise import Block, spans
from shoal.study.answer import sentence, undecided
from shoal.study.candidates import Candidate, Field, field_of, usual, with_seeds
from shoal.study.cells import effort, finish, read_csv, scores
from shoal.study.fit import Fit, scored, yardsticks
from shoal.study.power import needed, power
from shoal.study.race import CHOICE, NONE, SCORE, answered, judge, race
from shoal.study.winners import Site, Winners
from tests.command import DIGITS, ROOT, TINY, call, refused

pytestmark = pytest.mark.usefixtures("nowhere")

# Candidates that exchange in six epochs; recv costs more than all others.
RING = (*TINY, "network=ring", "sharing=recv,simp", "sharing.recv.every=2", "sharing.simp.every=2")
SOME = "recv,simp,modmod,fedavg"
# Doses that are said are not chosen.
SAID = (f"sharing={SOME}", "sharing.recv.queries=20", "sharing.simp.images=20", "sharing.modmod.modules=1",
        "sharing.fedavg.every=5", "sharing.recv.every=2", "sharing.simp.every=2")  # fmt: skip


class Made:
    """A measure that needs no training: scores of names by their mean gains, with noise of one point per seed that all
    have in common, one that is a candidate's own, and half a point between its validation rows and its test rows."""

    def __init__(self, gains: dict[str, float], seed: int) -> None:
        self.gains, self.rng, self.calls = {NONE: 0.0, **gains}, np.random.default_rng(seed), 0
        self.made: dict[tuple[str, int], float] = {}

    def __call__(self, names: Sequence[str], count: int) -> dict[str, Scores]:
        return {name: {seed: self.scores(name, seed) for seed in range(count)} for name in names}

    def scores(self, name: str, seed: int) -> dict[str, float]:
        both = {}
        for kind in (SCORE, CHOICE):
            at = f"{kind} {name}", seed
            if at not in self.made:
                self.made[at] = self.score(name, seed) + self.rng.normal(scale=0.5)
            both[kind] = self.made[at]
        return both

    def score(self, name: str, seed: int) -> float:
        if ("", seed) not in self.made:
            self.made["", seed] = 80 + self.rng.normal()
        if (name, seed) not in self.made:
            self.calls += 1
            self.made[name, seed] = self.made["", seed] + self.gains[name] + self.rng.normal()
        return self.made[name, seed]


def field(*names: str, over: Sequence[tuple[str, float]] = ()) -> Field:
    settings = read(DIGITS)
    within = [Candidate(name, settings, 1000.0) for name in names]
    return Field(Candidate(NONE, settings), within, [Candidate(name, settings, price) for name, price in over], {})


@pytest.mark.parametrize(("effect", "seeds"), [(0.2, 199), (0.3, 90), (0.5, 34), (0.8, 15), (1.0, 10)])
def test_the_seeds_that_would_decide_are_those_of_the_books(effect: float, seeds: int) -> None:
    # Paired t-test, two-sided, level 5 %, power 80 %: e.g. G*Power 3.1 (Faul et al. 2007).
    assert needed(effect, 1.0) == seeds
    assert needed(2 * effect, 2.0) == seeds
    assert power(effect, seeds) >= 0.8 > power(effect, seeds - 1)


def test_power_without_an_effect_is_the_level() -> None:
    for seeds in (2, 3, 10, 50):
        for level in (0.05, 0.005):
            assert power(0.0, seeds, level) == pytest.approx(level, rel=0.01)
    assert needed(0.0, 1.0) is None
    assert needed(1e-6, 1.0) is None
    assert needed(0.0, 0.0) is None
    assert needed(3.0, 0.0) == 2
    assert (needed(1.0, 1.0, 0.005) or 0) > (needed(1.0, 1.0) or 0)


def test_p_values_are_corrected_for_their_number() -> None:
    # By hand: 0.01 x 4, 0.02 x 3, 0.03 x 2 raised to what stands before it, 0.5 x 1.
    assert holm([0.03, 0.01, 0.5, 0.02]) == pytest.approx([0.06, 0.04, 0.5, 0.06])
    assert holm([0.01], looks=3) == pytest.approx([0.03])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_pure_noise_is_not_recommended() -> None:
    names = ["a", "b", "c", "d", "e"]
    picks = [answered(names, 8, Made(dict.fromkeys(names, 0.0), trial)).pick for trial in range(400)]
    assert sum(pick is not None for pick in picks) <= 0.05 * len(picks)


def test_a_clear_winner_is_found_for_less_than_all_seeds() -> None:
    gains = {"a": 0.0, "b": 6.0, "c": 1.0, "d": -2.0, "e": 0.5}
    found = [(made, answered([*gains], 8, made)) for made in (Made(gains, trial) for trial in range(100))]
    assert sum(ended.verdict.best == "b" for _, ended in found) >= 99
    assert sum(ended.pick == "b" for _, ended in found) >= 95
    assert sum(made.calls for made, _ in found) < 0.75 * len(found) * 8 * (1 + len(gains))


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    """Whatever was chosen, by luck or not: the best of many that are alike has a figure that is not too high."""
    covered, above = 0, 0.0
    trials = 600
    for trial in range(trials):
        gains = {f"mode{at}": 0.2 * at for at in range(8)}
        ended = answered([*gains], 8, Made(gains, trial))
        assert ended.measured is not None
        assert ended.measured.interval is not None
        truth = gains[ended.verdict.best or ""]
        low, high = ended.measured.interval
        covered += low <= truth <= high
        above += (ended.measured.mean - truth) / trials
    assert 0.93 <= covered / trials <= 0.97
    assert abs(above) < 0.1  # its gain on the validation rows that chose it is half a point too high


def test_test_rows_choose_nothing() -> None:
    def measure(names: Sequence[str], count: int) -> dict[str, Scores]:
        validation = {NONE: 0.0, "a": 5.0, "b": 1.0}
        test = {NONE: 0.0, "a": -3.0, "b": 9.0}
        seeds = range(count)
        return {
            one: {at: {CHOICE: validation[one] + at % 2, SCORE: test[one] + at % 3 / 10} for at in seeds}
            for one in names
        }

    ended = answered(["a", "b"], 8, measure)
    assert (ended.verdict.best, ended.pick) == ("a", None)
    assert ended.measured is not None
    assert ended.measured.mean < 0
    assert set(ended.scores["b"]) < set(ended.scores["a"])


def test_the_answer_is_the_highest_and_its_interval_and_p_in_the_table_say_the_same() -> None:
    rng = np.random.default_rng(2)
    noise = {"steady": 0.02, "high": 4.0, **{f"mode{at}": 1.0 for at in range(6)}}
    means = {"steady": 1.0, "high": 3.0}
    for _ in range(20):
        known: dict[str, Scores] = {NONE: {at: {CHOICE: 80.0, SCORE: 80.0} for at in range(8)}}
        for name, spread in noise.items():
            own = 80 + means.get(name, 0.0) + spread * rng.normal(size=8)
            known[name] = {at: {CHOICE: float(one), SCORE: float(one)} for at, one in enumerate(own)}

        def measure(names: Sequence[str], count: int, known: dict[str, Scores] = known) -> dict[str, Scores]:
            return {name: dict([*known[name].items()][:count]) for name in names}

        ended = answered([*noise], 8, measure)
        rows = advise.rows_of(field(*noise), ended, {})
        assert ended.verdict.best == next(row["candidate"] for row in rows if row["candidate"] != NONE)
        for row in rows:
            if row["p"] is not None:
                apart = row["gain_low"] > 0 or row["gain_high"] < 0
                assert apart == (row["p"] < 0.05)


def test_the_better_half_goes_on_and_who_was_left_behind_comes_back() -> None:
    # Of four, two go on; c looks best with two seeds and falls behind d with four.
    table = {"none": [0, 0, 0, 0], "a": [-9, -8, 0, 0], "b": [3, 4, 3, 5], "c": [9, 8, -9, -9], "d": [2, 1, 2, 3]}
    seen: list[tuple[list[str], int]] = []

    def measure(names: Sequence[str], count: int) -> dict[str, Scores]:
        seen.append((list(names), count))
        return {name: {at: {CHOICE: float(table[name][at])} for at in range(count)} for name in names}

    ended = race(["a", "b", "c", "d"], 4, measure)
    assert seen == [(["none", "a", "b", "c", "d"], 2), (["none", "c", "b"], 4), (["d"], 4)]
    assert {name: len(own) for name, own in ended.scores.items()} == {"none": 4, "a": 2, "b": 4, "c": 4, "d": 4}


def test_the_sentence_says_what_the_seeds_show() -> None:
    def both(number: float) -> dict[str, float]:
        return {SCORE: number, CHOICE: number + 1}

    certain: dict[str, Scores] = {
        NONE: {seed: both(80 + seed / 10) for seed in range(8)},
        "simp": {seed: both(85 + seed / 8) for seed in range(8)},
        "recv": {seed: both(84.5 + seed / 10 + seed % 2) for seed in range(8)},
    }
    ended = answered(
        ["simp", "recv"], 8, lambda names, count: {name: dict(list(certain[name].items())[:count]) for name in names}
    )
    words = sentence(field("simp", "recv", over=[("fedavg", 24_700.0)]), ended, 20_000, {"simp": 5040.0})
    assert words.startswith("Within 20 kB per link and task: simp, 85.7 % (+5.1 ± 0.1 over no sharing, p = ")
    assert (
        ", 5.04 kB). Validation rows do not tell it from recv. Over budget: fedavg 24.7 kB. (Chosen as the highest of "
        in words
    )
    assert words.endswith(
        "2 candidates on the validation rows of 4 seeds, of which the table's ± and p are, corrected for 4 looks; the "
        "± of this answer is the 95 % interval, and its p of a paired t-test, on the test rows of 4 other seeds.)"
    )


def test_the_best_of_many_that_are_alike_is_rarely_called_better_than_another() -> None:
    names = [f"mode{at}" for at in range(12)]
    wrong = 0
    for seed in range(200):
        known = Made(dict.fromkeys(names, 0.0), seed)([NONE, *names], 8)
        verdict = judge(known, 1)
        assert set(verdict.doubts) == set(names) - {verdict.best}
        wrong += min(verdict.doubts.values()) < 0.05
    assert wrong <= 16  # corrected for those 11 alone, 27


def test_where_nothing_is_shown_it_says_so_and_what_would_show_a_gain_of_interest() -> None:
    ended = answered(["simp", "recv"], 8, Made({"simp": 0.3, "recv": 0.1}, 3))
    words = sentence(field("simp", "recv"), ended, 20_000, {})
    assert ended.pick is None
    assert words.startswith(
        "Nothing is shown to help within 20 kB per link and task; share nothing. The best on validation rows is "
    )
    assert undecided(Gain(0.3, 0.5, 4), 1.0) == ": --seeds 20 would show a gain of 1 point, the smallest of interest"
    assert undecided(Gain(0.1, 0.5, 4), 1.0) == undecided(Gain(0.3, 0.5, 4), 1.0)  # not of what was seen
    assert undecided(Gain(0.1, 0.2, 4), 1.0) == ": it gains less than 1 point, the smallest gain of interest"
    assert undecided(Gain(0.1, 50.0, 4), 1.0).startswith(": not even 1,000 seeds would show a gain of 1 point")
    coarse = sentence(field("simp", "recv"), ended, 20_000, {}, effect=20)
    assert "it gains less than 20 points, the smallest gain of interest" in coarse
    worse = answered(["simp"], 8, Made({"simp": -9.0}, 0))
    assert "it gains less than 1 point" in sentence(field("simp"), worse, None, {})


def test_where_all_is_over_budget_nothing_is_trained() -> None:
    done = call("advise", DIGITS, *RING, "--budget", "1 B/task", "--candidates", SOME, "--out", "out", "--json")
    told = json.loads(done.out)
    assert done.code == 0
    assert told["sentence"].startswith(
        "Nothing can be shared within 1 B per link and task; share nothing; the cheapest is "
    )
    assert (told["pick"], told["lane_epochs"]) == (None, 0)
    assert not list(Path("out").glob("*/"))


def test_seeds_that_follow_each_other_are_a_block() -> None:
    assert spans([0, 1, 4, 5, 6, 9]) == [(0, 2), (4, 3), (9, 1)]
    assert spans([]) == []


def test_all_that_suits_is_a_candidate_and_hybrids_share_different_things() -> None:
    names = list(usual())
    assert {"recv", "simp", "uniform", "fedavg", "fedprox", "fedcurv", "fedfish", "modmod"} <= set(names)
    assert {"recv+modmod", "simp+fedavg", "modmod+fedavg", "uniform+modmod+fedavg"} <= set(names)
    assert "recv+simp" not in names
    assert "fedavg+fedprox" not in names
    words = [word for word in RING if not word.startswith("sharing")]
    raw, _ = advise.described(DIGITS, [*words, "model=mlp", "learner.epochs=16"])
    found = field_of(raw, None, 3000)
    assert "modmod" in found.unfit  # it needs modules
    assert {one.name for one in found.within} & {"simp"}
    assert all(one.price > 3000 for one in found.over)
    assert all(one.price <= 3000 for one in found.within)


def test_the_price_is_what_is_sent_at_most() -> None:
    raw, _ = advise.described(DIGITS, RING)
    (one,) = field_of(raw, ["simp"], None).within
    advice = shoal.advise(DIGITS, candidates=["simp"], seeds=2, out="out", words=RING, fit=False)
    (own,) = [row for row in advice.rows if row["candidate"] == "simp"]
    assert 0 < own["sent"] <= own["price"] == one.price


def test_advice_is_a_sweep_with_less_training_and_goes_on_where_it_was_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = (
        "advise",
        DIGITS,
        *[word for word in RING if not word.startswith("sharing")],
        *SAID,
        "--budget",
        "6 kB/task",
        "--candidates",
        SOME,
        "--seeds",
        "4",
        "--out",
        "out",
        "--no-fit",
    )
    trained: list[Block] = []

    def stop(cell: Block, *rest: object) -> None:
        if len(trained) == 3:
            raise Stopped("stopped")
        trained.append(cell)
        finish(cell, *rest)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr("shoal.study.cells.finish", stop)
        assert call(*words).code == 130
    assert not Path("out/advise.txt").exists()
    done = call(*words, "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert not any(f"{block.name}:" in done.err for block in trained)
    for ending in ("txt", "csv", "json", "svg", "png"):
        assert Path(f"out/advise.{ending}").stat().st_size
    assert Path("out/advise.txt").read_text(encoding="utf-8").strip() == told["sentence"]
    rows = {row["candidate"]: row for row in told["candidates"]}
    assert [row["candidate"] for row in read_csv(Path("out/advise.csv"))] == list(rows)
    assert [name for name, row in rows.items() if row["over_budget"]] == ["recv"]
    assert "Over budget: recv 26.7 kB." in told["sentence"]

    axes = ["sharing=none,recv,simp,modmod,fedavg", "sharing.recv.every=2", "sharing.simp.every=2"]
    fixed = [word for word in RING if not word.startswith(("sharing", "seeds="))]
    cells = {cell.words["sharing"]: cell for cell in sweep.grid(DIGITS, axes, [*fixed, "seeds=4"])}
    assert told["of_lane_epochs"] == sum(effort(cell) for cell in cells.values())
    assert told["lane_epochs"] < told["of_lane_epochs"]
    whole: dict[str, Scores] = {}
    for name in rows:
        if not rows[name]["over_budget"]:
            finish(cells[name], Path("sweep"), None)
            (place,) = Path("sweep").glob(f"*-{cells[name].settings.identity()}")
            whole[name] = scores(place)
    # Blocks of seeds are bit for bit the sweep's, so that advice differs from it only by what it left out.
    raced = advise.runs_of({name: Candidate(name, cell.settings) for name, cell in cells.items()}, Path("out"))
    for name, own in whole.items():
        assert len(raced[name]) == rows[name]["seeds"]
        for seed, place in raced[name].items():
            assert scores(place)[seed] == own[seed]
    again = call(*words, "--json")
    assert json.loads(again.out) == told


def test_seeds_of_several_runs_are_combined() -> None:
    raw, _ = advise.described(DIGITS, RING)
    (simp,) = field_of(raw, ["simp"], None).within
    for first, count in ((0, 1), (1, 2)):
        finish(Block("mine", with_seeds(simp.settings, first, count)), Path("out"), None)
    wanted: list[tuple[str, int, int]] = []

    def train(blocks: Sequence[Block], folder: Path) -> None:
        wanted.extend((one.candidate, one.settings.seed, one.settings.seeds) for one in blocks)
        advise.trained(blocks, folder)

    shoal.advise(DIGITS, candidates="simp", seeds=4, out="out", words=RING, train=train, fit=False)
    start = simp.settings.seed
    assert ("none", start, 2) in wanted
    assert [one for one in wanted if one[0] == "simp"] in ([], [("simp", start + 3, 1)])


def test_advice_in_python_takes_settings_fleets_and_modes() -> None:
    class Fleet:
        settings = read(DIGITS, [word for word in RING if not word.startswith("sharing")])

    own = Simp(every=2, images=6)
    advice = shoal.advise(Fleet(), budget="20 kB/task", candidates=[own], seeds=2, out="out", fit=False)
    assert str(advice) == repr(advice) == advice.sentence
    assert advice.table["candidate"].to_list() in (["simp", "none"], ["none", "simp"])
    assert advice.table["seeds"].to_list() == [2, 2]
    assert advice.chart().to_dict()
    same = shoal.advise(Fleet.settings, budget="20 kB/task", candidates=[own], seeds=2, out="out", fit=False)
    assert same.sentence == advice.sentence


def test_candidates_with_settings_are_tables_in_python() -> None:
    settings = read(DIGITS, [word for word in RING if not word.startswith("sharing")])
    raw, _ = advise.described(settings, [])
    few, many = ({"mode": "simp", "every": 2, "images": count} for count in (4, 9))
    found = field_of(raw, [few, many, {"mode": "uniform", "images": 3}, Simp(every=3), "simp"], None)
    made = {one.name: one.settings.sharing[0] for one in found.within}
    names = ["simp (every=2, rows=4)", "simp (every=2, rows=9)", "uniform", "simp (every=3)", "simp"]
    assert list(made) == names
    assert [getattr(made[name], "images", None) for name in names] == [4, 9, 3, 20, 20]
    assert made["uniform"].every == settings.learner.epochs  # its usual time between exchanges is longer than a task
    with pytest.raises(SettingsError, match=r"cannot read the candidate \{'images': 4\}; candidates look like"):
        field_of(raw, [{"images": 4}], None)
    with pytest.raises(SettingsError, match="imgaes"):
        field_of(raw, [{"mode": "simp", "imgaes": 4}], None)
    advice = shoal.advise(settings, candidates=[few, many], seeds=2, out="out", fit=False)
    assert set(advice.table["candidate"]) == {NONE, *names[:2]}


def test_who_gains_and_who_loses_is_said_by_site() -> None:
    gains = {"north": Gain(3.0, 0.1, 4), "south": Gain(0.2, 1.0, 4), "east": Gain(-2.0, 0.1, 4)}
    told = Winners(tuple(Site(name, one, len(gains)) for name, one in gains.items()), ())
    assert told.said() == (
        "By site, each ± corrected for all 3: north gains 3.0 ± 0.5; east loses 2.0 ± 0.5; not shown to gain or to "
        "lose: south (+0.2 ± 4.9)."
    )
    assert Winners((), (1.0, 0.5, -1.0, 0.0)).said() == "Of 4 agents, 2 gain and 1 lose."
    assert Winners((), ()).said() == ""


def test_what_sites_gain_is_what_their_agents_have_more_on_test_rows() -> None:
    rng = np.random.default_rng(0)
    label, agent = rng.integers(0, 4, 480), np.array(["north", "south", "east"])[np.arange(480) % 3]
    rows = 2 * np.eye(4, 6)[label] + rng.normal(size=(480, 6))
    fleet = shoal.Fleet(shoal.Data.from_arrays(rows, label, agent=agent), model="mlp",
                        tasks={"count": 2, "classes": 2, "initial": 1}, learner={"epochs": 4})  # fmt: skip
    one = {"mode": "simp", "every": 2, "images": 6}
    advice = shoal.advise(fleet, candidates=[one], seeds=4, out="out", fit=False)
    (pick,) = [row for row in advice.rows if row["candidate"] == "simp"]
    assert {row["site"] for row in advice.sites} == {"north", "south", "east"}
    assert np.mean([row["gain"] for row in advice.sites]) == pytest.approx(pick["test_gain"])
    assert " By site, each ± corrected for all 3: " in advice.sentence
    assert json.loads(Path("out/advise.json").read_text())["sites"] == list(advice.sites)


def test_doses_fill_the_budget_and_one_is_smaller() -> None:
    raw, _ = advise.described(DIGITS, ["network=ring"])
    usual = {one.name: one.price for one in field_of(raw, "uniform,simp,fedavg,modmod,recv+modmod", None).within}
    limit = 12_000
    found = field_of(raw, "uniform,simp,fedavg,modmod,recv+modmod", limit)
    assert all(one.price <= limit for one in found.within)
    doses: dict[str, list[Candidate]] = {}
    for one in found.within:
        doses.setdefault("+".join(mode.mode for mode in one.settings.sharing), []).append(one)
    assert usual["uniform"] > limit
    large, small = doses["uniform"]
    (mode,) = large.settings.sharing
    assert large.name == f"uniform (rows={mode.images})"  # type: ignore[attr-defined]
    assert large.price > 0.9 * limit > 0.6 * limit > small.price > 0
    more = {"mode": "uniform", "images": mode.images + 2}  # type: ignore[attr-defined]
    (rare,) = field_of(raw, [more], limit).within  # what is said of a dose stays
    assert rare.name == "uniform (every=50)"
    assert rare.settings.sharing[0].images == more["images"]  # type: ignore[attr-defined]
    assert field_of(raw, [{**more, "every": 16}], limit).over
    assert doses["simp"][0].name == "simp"
    assert doses["simp"][1].price > usual["simp"]  # there is room for more than usual
    assert usual["recv+modmod"] > limit
    assert "recv (queries=" in doses["recv+modmod"][0].name
    assert all("uniform" not in one.name for one in found.over)


def test_a_mode_that_sends_one_thing_exchanges_less_often_for_a_budget() -> None:
    raw, _ = advise.described(DIGITS, ["network=ring", "model=mlp"])
    (usual,) = field_of(raw, "fedavg", None).within
    found = field_of(raw, "fedavg", int(usual.price / 3))
    every = [one.settings.sharing[0].every for one in found.within]
    assert usual.settings.sharing[0].every == 5
    assert usual.settings.learner.epochs == 50
    assert 50 // every[0] == 3  # type: ignore[operator]
    assert every[1] > every[0]  # type: ignore[operator]
    assert not field_of(raw, "fedavg", 10).within  # not even once in a task


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--budget", "20 kB"], "does not say how many bytes a link may carry in a task"),
        (["--budget", "20 kB/second"], "a budget cannot be '20 kB/second': it is per exchange or per task"),
        (["--budget", "much"], "a budget cannot be 'much'"),
        (["--seeds", "1"], "seeds cannot be 1; at least 2 are needed"),
        (["--candidates", "recvv"], "there is no sharing mode `recvv`"),
        (["--candidates", "recv++simp"], "cannot read the candidate 'recv++simp'"),
        (["--candidates", "none"], "there is no candidate"),
        (["--candidates", "recv+simp"], "would keep what they receive in the same buffers"),
        (["agnets=2"], "did you mean `agents`?"),
        (["protocol=paper", "--candidates", "recv"], "say protocol=fair"),
        (["network=disconnected", "--candidates", "simp"], "no edge"),
    ],
)
def test_what_cannot_be_advised_gets_one_sentence(words: list[str], part: str) -> None:
    refused(call("advise", DIGITS, *RING, *words), part)
    assert not list(Path().iterdir())


def test_the_folder_of_an_advice_has_a_name_that_every_system_takes() -> None:
    Path("rows.csv").write_text("a,y\n" + "".join(f"{at},{at % 2}\n" for at in range(40)))
    assert advise.described("csv:rows.csv?label=y", [])[1] == "csv-rows"
    assert advise.described(DIGITS, [])[1] == "digits"


def test_only_fleets_can_be_advised() -> None:
    with pytest.raises(SettingsError, match="cannot advise 5; give a fleet"):
        shoal.advise(5)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="can be said of a settings file only"):
        shoal.advise(read(DIGITS), words=["agents=2"])


def test_a_mode_that_would_act_less_than_once_in_a_task_acts_once_and_it_is_said() -> None:
    tasks = {"count": 3, "classes": 2, "train": 8, "validation": 4, "initial": 1}
    learner = {"epochs": 3, "batch": 8, "memory": 4}
    raw = {"dataset": "digits", "model": "mlp", "agents": 2, "tasks": tasks, "learner": learner}
    field = field_of(raw, "recv,fedavg", None)
    assert field.sooner == ("recv", "fedavg")
    assert [one.settings.sharing[0].every for one in field.within] == [3, 3]
    said = field_of({**raw, "sharing": [{"mode": "recv", "every": 2}]}, "recv", None)
    assert said.sooner == ()
    assert said.within[0].settings.sharing[0].every == 2


def test_if_nothing_can_be_shared_it_is_said_why() -> None:
    base = Candidate(NONE, shoal.Settings(dataset="digits", agents=2))
    field = Field(base, [], [], {"modmod": "mode `modmod` needs a modular model, got `mlp`; use another"})
    said = sentence(field, None, None, {})
    assert said == (
        "Nothing can be shared without a limit; share nothing; modmod cannot, because mode `modmod` needs a modular "
        "model, got `mlp`."
    )


def test_agents_that_are_not_fitted_are_said_first_and_compared_as_they_learn_best() -> None:
    """Half of the units dropped of a narrow net: without that agents alone learn, and sharing is compared there."""
    words = ("network=ring", "agents=3", "model=mlp", "tasks.count=3", "tasks.initial=1", "net.width=16",
             "net.dropout=0.8", "learner.epochs=10", "tasks.train=20")  # fmt: skip
    advice = shoal.advise(DIGITS, candidates="simp", seeds=4, out="out", words=words)
    assert "net.dropout=0" in advice.changes
    assert advice.sentence.startswith("Agents alone are not fitted as set: ")
    assert "; sharing is compared with these settings. " in advice.sentence
    raced = [read(place) for place in Path("out").glob("simp*/settings.toml")]
    assert raced
    assert all(one.net.dropout == 0 for one in raced)
    assert all(not one.sharing for one in map(read, Path("out").glob("net.dropout*/settings.toml")))


def test_yardsticks_are_linear_models_that_see_more_with_more_rows() -> None:
    settings = read(DIGITS, ["model=mlp", "agents=6", "tasks.count=4", "tasks.train=6", "tasks.common=false"])
    linear, pooled = yardsticks(worlds(settings, data.load("digits"))[0])
    assert linear is not None
    assert pooled is not None
    assert 70 < linear < pooled <= 100
    numbers = np.linspace(-1, 1, 80)[:, None]
    fleet = shoal.Fleet(shoal.Data.from_arrays(numbers, 3 * numbers[:, 0] + 0.5), agents=2, model="mlp")
    linear, _ = yardsticks(worlds(fleet.settings, data.load(fleet.settings.dataset))[0])
    assert linear == pytest.approx(100, abs=0.5)


def test_it_is_said_whether_agents_alone_are_fitted() -> None:
    assert Fit(93.0, {}, None, 90.0, 95.0).said() == (
        "Agents alone are fitted: 93.0 % of validation rows (a linear model of each task has 90.0 %, one of all "
        "agents' rows 95.0 %)."
    )
    worse = Fit(60.0, {}, None, 90.0, 95.0)
    assert not worse.good
    assert "no plain change of their settings is better" in worse.said()


@pytest.mark.slow
def test_the_answer_that_readme_quotes_is_the_commands() -> None:
    done = call("advise", "digits", "network=ring", "--budget", "20 kB/task", "--out", "out")
    assert done.code == 0, done.err
    said = Path("out/advise.txt").read_text(encoding="utf-8").strip()
    for page in ("README.md", "docs/commands.md"):
        lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
        quoted = next(line for line in lines if line.startswith("> Agents alone are"))
        assert all(part.strip() in said for part in quoted[2:].split("[...]"))


def test_a_run_says_if_its_agents_look_underfitted() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 4))
    data = shoal.Data.from_arrays(x, np.where(x[:, 0] > 0, "hot", "cold"), agent=["north", "south"] * 300)
    poor = shoal.Fleet(data, model="mlp", net={"width": 8, "depth": 4, "dropout": 0.6}, learner={"epochs": 2}).run()
    assert poor.note.startswith("agents look underfitted: they know ")
    assert poor.note in repr(poor)
    good = shoal.Fleet(
        data, model="mlp", net={"width": 32, "depth": 2, "dropout": 0.0}, learner={"epochs": 40, "rate": 0.003}
    ).run()
    assert good.note == ""
    assert "underfitted" not in repr(good)


def test_equal_gains_of_few_seeds_are_not_sure() -> None:
    from shoal.runs.paired import Gain

    assert Gain(0.5, 0.0, 2).p == 0.5
    assert Gain(0.5, 0.0, 8).p == 0.5**7
    assert Gain(0.0, 0.0, 2).p == 1.0


@pytest.mark.parametrize("numeric", [False, True])
def test_a_linear_model_is_the_same_by_rows_and_by_columns(numeric: bool) -> None:
    rng = np.random.default_rng(0)
    x, check = rng.normal(size=(40, 5)), rng.normal(size=(30, 5))
    wanted = [one @ [[1.0], [2], [0], [0], [-1]] + rng.normal(size=(len(one), 1)) for one in (x, check)]
    y, right = wanted if numeric else [(one[:, 0] > 0).astype(int) + (one[:, 0] > 2) for one in wanted]
    wide = [np.pad(one, ((0, 0), (0, 60))) for one in (x, check)]  # columns of zeros, of which there are more than rows
    found = scored(x, y, check, right, numeric)
    assert min(found) > 0.3
    assert found == pytest.approx(scored(wide[0], y, wide[1], right, numeric))
