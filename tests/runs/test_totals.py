"""A ledger of totals: fewer rows, the same sums, the same run."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from shoal.configure.reading import resolve
from shoal.contracts.fleets import difference
from shoal.errors import SettingsError, Stopped
from shoal.fleet.run import Moment
from shoal.report.traffic import posted
from shoal.runs.execute import carry_out, prepare
from shoal.runs.record import Record, create
from shoal.settings.groups import Settings
from shoal.study.cells import measured
from tests.fleet.test_members import RAW
from tests.fleets import last_saved

BUSY = {"network": {"graph": "ring", "budget": "6 kB/task", "every": 1}, "learner": {**RAW["learner"], "epochs": 6}}


def settings_of(ledger: str, **changes: Any) -> Settings:
    """A hybrid over links with limits, of which some mail is refused."""
    return resolve({**RAW, **BUSY, "tasks": {**RAW["tasks"], "count": 5}, "machine": {"ledger": ledger}, **changes})


def run(folder: Path, settings: Settings) -> tuple[Record, dict[str, Any]]:
    record = create(folder, settings)
    return record, carry_out(prepare(settings), record)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Record, dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("totals")
    return {name: run(folder / name, settings_of(name)) for name in ("messages", "totals")}


def test_totals_are_fewer_rows_and_the_same_sums(both: dict[str, tuple[Record, dict[str, Any]]]) -> None:
    (plain, want), (short, found) = both["messages"], both["totals"]
    assert plain.settings.identity() == short.settings.identity()
    names = [name for name in want if "seconds" not in name and name != "out"]
    assert {name: found[name] for name in names} == {name: want[name] for name in names}
    rows, totals = (pl.read_parquet(record.folder / "ledger.parquet") for record in (plain, short))
    assert want["refused"] > 0
    assert len(totals) < len(rows) == totals["messages"].sum()
    alike = ["seed", "task", "sender", "receiver", "mode", "kind", "verdict"]
    sums = rows.group_by(alike).agg(pl.col("items", "floats", "bytes", "paper").sum(), pl.len().alias("messages"))
    sums = sums.with_columns(pl.col("messages").cast(pl.Int64)).sort(alike)
    assert totals.select(sums.columns).sort(alike).equals(sums)
    assert posted(totals, 1, {}) == posted(rows, 1, {})
    measured(short.folder)  # its records agree with its summary
    assert not (short.folder / "links.parquet").exists()
    one, other = (last_saved(record) for record in (plain, short))
    assert one is not None
    assert other is not None
    assert difference(one[0], other[0]) == ""


def test_a_run_with_totals_goes_on_from_any_checkpoint(
    both: dict[str, tuple[Record, dict[str, Any]]], tmp_path: Path
) -> None:
    """Links remember what they have carried: what is refused is the same."""
    settings = settings_of("totals", machine={"ledger": "totals", "checkpoint": 1e-9})
    record, fleet, stops = create(tmp_path / "run", settings), prepare(settings), [(3, 4), (4, 0), (4, 3)]

    def show(moment: Moment) -> None:
        if (moment.task, moment.epoch) in stops:
            stops.remove((moment.task, moment.epoch))
            raise InterruptedError

    while stops:
        with pytest.raises((InterruptedError, Stopped)):
            carry_out(fleet, record, show)
    carry_out(fleet, record)
    found, want = (one.folder / "ledger.parquet" for one in (record, both["totals"][0]))
    assert pl.read_parquet(found).equals(pl.read_parquet(want))


def test_totals_where_mail_can_be_late_are_one_sentence() -> None:
    late = {"network": {**BUSY["network"], "delay": 1}}
    with pytest.raises(SettingsError, match=r"machine.ledger = \"totals\" cannot tell when a message came"):
        prepare(settings_of("totals", **late))
