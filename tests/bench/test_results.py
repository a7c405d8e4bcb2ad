"""What the bench keeps: CSV files, the tables made of them, and the attacks."""

from pathlib import Path

import numpy as np
import pytest

from bench import attacks, exchanges, results, speed
from shoal.letters.mail import ACCEPTED


def test_rows_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    file = tmp_path / "new" / "some.csv"
    results.write(file, [{"name": "a, b", "rate": 1234.5678, "note": ""}, {"name": "c", "rate": 2.0, "note": "d"}])
    assert results.read(file) == [
        {"name": "a, b", "rate": "1234.57", "note": ""},
        {"name": "c", "rate": "2", "note": "d"},
    ]
    assert results.read(tmp_path / "none.csv") == []
    assert not list(file.parent.glob("*.part"))


def test_the_stamp_says_where_when_and_by_which_commit() -> None:
    assert tuple(results.stamp()) == results.STAMP
    assert all(results.stamp().values())


def test_the_table_of_speed_shows_ratios_with_their_spread_and_what_is_not_installed() -> None:
    rates = {f"{name}/8/1": [100.0, 200.0, 400.0] for name in (speed.SHOAL, speed.TIGHT)}
    rates |= {"stacked by hand/8/1": [50.0, 50.0, 50.0], "stacked by hand/8/2": [150.0, 500.0, 600.0]}
    rates |= {"slow twin/1/1": [10.0, 20.0, 30.0]}
    rows = [speed.row(rates, "mlp", 2, 8, name) for name in speed.NAMES]
    stacked = rows[2]
    assert stacked["note"] == "pieces: 2"
    assert (stacked["to_shoal"], stacked["to_shoal_low"], stacked["to_shoal_high"]) == (1.5, 1.5, 2.5)
    head, _, line = speed.table(rows).splitlines()
    assert head == "| model | cores | lanes | shoal | tight loop | stacked by hand | JAX | slow twin |"
    assert line == (
        "| monolithic | 2 | 8 | 200 | 200 (1.00; 1.00 to 1.00) | 500 (1.50; 1.50 to 2.50) | not installed "
        "| 20 (0.10; 0.07 to 0.10) |"
    )


def test_on_the_graph_of_eight_everybody_has_eight_neighbours() -> None:
    graph = exchanges.eight(20, 0, np.random.default_rng(0))
    assert set(dict(graph.degree).values()) == {8}


def test_the_table_of_attacks_has_a_column_for_each_commit_and_says_what_ended() -> None:
    same = {"mode": "fedavg", "attack": "weights of 1e30", "model": "mlp"}
    rows = [
        {**same, "accuracy": "", "ended": "14", "commit": "first"},
        {**same, "accuracy": "80.04", "ended": "1", "commit": "second"},
    ]
    assert attacks.table(rows).splitlines()[0].count("|") == 7
    assert attacks.table(rows).splitlines()[2] == (
        "| fedavg | weights of 1e30 | the fleet ends |  | 80.0 (1 ended) |  |"
    )


def test_the_attacks_that_are_kept_are_those_that_are_made() -> None:
    known = {(trial.model, trial.mode, trial.attack) for trial in attacks.TRIALS}
    kept = results.read(attacks.FILE)
    assert kept
    assert {(row["model"], row["mode"], row["attack"]) for row in kept} <= known


@pytest.mark.parametrize("attack", [attacks.HONEST, "sign-flipped weights"])
def test_a_hostile_agent_is_one_of_eight_and_speaks_through_the_post(attack: str) -> None:
    import shoal

    (world,) = shoal.prepare(attacks.Trial("mlp", "fedavg", attack).settings(quick=True))
    seen = []
    shoal.simulate(world, observe=lambda mail, verdict: seen.append((mail, verdict)))
    models = [(mail, verdict) for mail, verdict in seen if mail.kind == "model"]
    lies = [mail for mail, verdict in models if mail.sender.agent == attacks.HOSTILE and verdict == ACCEPTED]
    assert len(models) == attacks.AGENTS * len(lies)
