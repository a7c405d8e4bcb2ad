"""What to share for a budget."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import shoal
from shoal.errors import SettingsError, Stopped
from shoal.runs.cells import effort, finish, read_csv, scores
from shoal.settings.reading import read
from shoal.sharing.simp import Simp
from shoal.study import advise, sweep
from shoal.study.advise import Block, spans
from shoal.study.answer import sentence
from shoal.study.candidates import Candidate, Field, field_of, usual, with_seeds
from shoal.study.paired import Scores, holm
from shoal.study.power import needed, power
from shoal.study.race import NONE, SCORE, Race, judge, race
from tests.command import DIGITS, TINY, call, refused

pytestmark = pytest.mark.usefixtures("nowhere")

# Candidates that exchange in six epochs; recv costs more than all others.
RING = (*TINY, "network=ring", "sharing=recv,simp", "sharing.recv.every=2", "sharing.simp.every=2")
SOME = "recv,simp,modmod,fedavg"


class Made:
    """A measure that needs no training: scores of names by their mean gains, with noise of one point per seed that all
    have in common, and one that is a candidate's own."""

    def __init__(self, gains: dict[str, float], seed: int) -> None:
        self.gains, self.rng, self.calls = {NONE: 0.0, **gains}, np.random.default_rng(seed), 0
        self.made: dict[tuple[str, int], float] = {}

    def __call__(self, names: Sequence[str], count: int) -> dict[str, Scores]:
        return {name: {seed: {SCORE: self.score(name, seed)} for seed in range(count)} for name in names}

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
    picks = [race(names, 8, Made(dict.fromkeys(names, 0.0), trial)).verdict.pick for trial in range(400)]
    assert sum(pick is not None for pick in picks) <= 0.05 * len(picks)


def test_a_clear_winner_is_found_for_less_than_all_seeds() -> None:
    gains = {"a": 0.0, "b": 6.0, "c": 1.0, "d": -2.0, "e": 0.5}
    found = [(made, race([*gains], 8, made)) for made in (Made(gains, trial) for trial in range(100))]
    assert sum(ended.verdict.pick == "b" for _, ended in found) >= 99
    assert sum(made.calls for made, _ in found) < 0.75 * len(found) * 8 * (1 + len(gains))


def test_the_better_half_goes_on_and_who_was_left_behind_comes_back() -> None:
    # Of four, two go on; c looks best with two seeds and falls behind d with four.
    table = {"none": [0, 0, 0, 0], "a": [-9, -8, 0, 0], "b": [3, 4, 3, 5], "c": [9, 8, -9, -9], "d": [2, 1, 2, 3]}
    seen: list[tuple[list[str], int]] = []

    def measure(names: Sequence[str], count: int) -> dict[str, Scores]:
        seen.append((list(names), count))
        return {name: {at: {SCORE: float(table[name][at])} for at in range(count)} for name in names}

    ended = race(["a", "b", "c", "d"], 4, measure)
    assert seen == [(["none", "a", "b", "c", "d"], 2), (["none", "c", "b"], 4), (["d"], 4)]
    assert {name: len(own) for name, own in ended.scores.items()} == {"none": 4, "a": 2, "b": 4, "c": 4, "d": 4}


def test_the_sentence_says_what_the_seeds_show() -> None:
    certain: dict[str, Scores] = {
        NONE: {seed: {SCORE: 80 + seed / 10} for seed in range(8)},
        "simp": {seed: {SCORE: 85 + seed / 8} for seed in range(8)},
        "recv": {seed: {SCORE: 84.5 + seed / 10 + seed % 2} for seed in range(8)},
    }
    ended = Race(certain, judge(certain, 3), 3, ["simp", "recv"])
    words = sentence(field("simp", "recv", over=[("fedavg", 24_700.0)]), ended, 20_000, {"simp": 5040.0})
    assert words.startswith("Within 20 kB per link and task: simp, 85.4 % (+5.1 ± 0.1 over no sharing, 5.04 kB). ")
    assert "Not yet certain against recv (p = 1): " in words
    assert "more seeds would decide. Over budget: fedavg 24.7 kB. (± is the 95 % interval over 8 seeds; p of " in words
    assert words.endswith("corrected by Holm's rule for 2 candidates and 3 looks.)")


def test_the_best_of_many_that_are_alike_is_rarely_called_better_than_another() -> None:
    names = [f"mode{at}" for at in range(12)]
    wrong = 0
    for seed in range(60):
        known = Made(dict.fromkeys(names, 0.0), seed)([NONE, *names], 8)
        verdict = judge(known, 1)
        assert set(verdict.doubts) == set(names) - {verdict.best}
        wrong += min(verdict.doubts.values()) < 0.05
    assert wrong <= 4  # corrected for those 11 alone, 8


def test_where_nothing_is_shown_it_says_so_and_what_would_decide() -> None:
    noise = Made({"simp": 0.3, "recv": 0.1}, 3)
    ended = race(["simp", "recv"], 8, noise)
    words = sentence(field("simp", "recv"), ended, 20_000, {})
    assert ended.verdict.pick is None
    assert words.startswith(
        "Nothing is shown to help within 20 kB per link and task; share nothing. The best so far is "
    )
    assert "more seeds would decide" in words or "not even 1,000 seeds would decide" in words
    worse = race(["simp"], 4, Made({"simp": -5.0}, 0))
    assert "no better than no sharing so far" in sentence(field("simp"), worse, None, {})


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
    advice = shoal.advise(DIGITS, candidates=["simp"], seeds=2, out="out", words=RING)
    (own,) = [row for row in advice.rows if row["candidate"] == "simp"]
    assert 0 < own["sent"] <= own["price"] == one.price


def test_advice_is_a_sweep_with_less_training_and_goes_on_where_it_was_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = ("advise", DIGITS, *RING, "--budget", "6 kB/task", "--candidates", SOME, "--seeds", "4", "--out", "out")
    trained: list[Block] = []

    def stop(cell: Block, *rest: object) -> None:
        if len(trained) == 3:
            raise Stopped("stopped")
        trained.append(cell)
        finish(cell, *rest)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr("shoal.runs.cells.finish", stop)
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

    shoal.advise(DIGITS, candidates="simp", seeds=4, out="out", words=RING, train=train)
    start = simp.settings.seed
    assert ("none", start, 2) in wanted
    assert [one for one in wanted if one[0] == "simp"] in ([], [("simp", start + 3, 1)])


def test_advice_in_python_takes_settings_fleets_and_modes() -> None:
    class Fleet:
        settings = read(DIGITS, [word for word in RING if not word.startswith("sharing")])

    own = Simp(every=2, images=6)
    advice = shoal.advise(Fleet(), budget="20 kB/task", candidates=[own], seeds=2, out="out")
    assert str(advice) == repr(advice) == advice.sentence
    assert advice.table["candidate"].to_list() in (["simp", "none"], ["none", "simp"])
    assert advice.table["seeds"].to_list() == [2, 2]
    assert advice.chart().to_dict()
    same = shoal.advise(Fleet.settings, budget="20 kB/task", candidates=[own], seeds=2, out="out")
    assert same.sentence == advice.sentence


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
