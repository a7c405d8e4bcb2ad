"""Run directories: settings, versions, checkpoint, records, summary. Every file appears whole or not at all.

settings.toml             all settings, resolved; `shoal run` accepts it as it is
about.json                shoal's version and commit, versions of what it runs on, when
data.json                 what agents learn from: its digest, rows, classes, how each agent scales it, what they share
rows.safetensors          all rows of a run that went on with others, which no name can say (only of such a run)
source.json               what rows are like: shape, columns, units, names of classes and sites
agents.parquet            a row per agent: its site, classes and scaling, so that it can be taken out of the checkpoint
checkpoint.safetensors    the stacks, at most `machine.checkpoint` seconds or one epoch old
earlier.safetensors       the checkpoint before that, in case the last one is damaged; until the run is finished
accuracy.parquet          a row per measurement: seed, agent, task, epoch, tested, accuracy
training.parquet          a row per task of an agent: seed, agent, task, training loss at its end, that of guessing,
                          norm of the weights; if it diverged there, after how many epochs it ended, and why
time.parquet              a row per time at which an agent was tested: seed, agent, task, epoch, the seconds and joules
                          that it had spent and the bytes that it had sent (only if clock.speed is said)
growth.parquet            a row per trial of a module: seed, agent, task, accuracy with and without it, kept; the
                          agent and task it was received from, and those where it began, so many hops ago
candidates.parquet        a row per module that an agent was offered: seed, agent, task, sender, the sender's task it
                          was grown for, score, accuracy in a tryout, chosen, kept (only if modules are shared)
ledger.parquet            a row per message: seed, task, epoch, sender, receiver, mode, kind, items, floats, bytes,
                          floats by the paper's rule, accepted or why refused (only if agents share)
links.parquet             a row per directed link: seed, sender, receiver, messages sent, delivered, late, lost,
                          refused, under way and kept back, mean age of what the receiver knew (only if agents share)
consensus.parquet         a row per seed and kind of nets at the end of a task: how far agents' common weights are from
                          their mean, and the norm of that mean (only if agents share)
privacy.parquet           a row per agent: how often its model has left with noise, the epsilon that it has spent, at
                          which delta, and what it may spend (only if a policy has noise)
drift.parquet             a row per boundary of an agent's stream: seed, agent, row, whether it is true, was detected or
                          was a false alarm, how many rows late (only if tasks.scenario = drift)
validation.parquet        a row per agent and task: accuracy on its validation rows at the end, to choose settings by
predictions-1.parquet     a row per test row of every task so far, at the end of task 1, and so on: seed, agent, tested,
                          row of the data, label, prediction, confidence (only if record.predictions is said)
others.parquet            a row per task that only other agents of the seed have met: accuracy without having met it
                          (in a fleet of several kinds, these tables have a column `kind`, the ledger not)
summary.json              the metrics; there when the run is finished
manifest.json             the SHA-256 of every file, or the two that it may have where a kill came between

In these files agents and tasks are counted from 0; what is shown to people counts tasks from 1.
"""

import io
import os
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

import shoal
from shoal.agents.stack import PARAMS, Stack
from shoal.agents.world import World
from shoal.configure.reading import is_there, parsed, resolve
from shoal.errors import SettingsError
from shoal.files import beside, put, settle
from shoal.fleet.health import unfit
from shoal.models.table import vet
from shoal.network.graphs import is_file
from shoal.runs import checkpoints, files, rows
from shoal.runs.about import about, difference, sessions_of
from shoal.runs.examined import examined
from shoal.runs.files import FORMAT, RecordError, content, of_today, raw_settings, reason, text
from shoal.settings.groups import Settings
from shoal.settings.writing import toml
from shoal.trust import UntrustedError, allow, loads, remember, strings

WAIT = 0.5  # seconds for which a process that is in a folder is waited for


Wanted = Callable[[tuple[Stack, ...]], tuple[Stack, ...]]  # what of a checkpoint somebody goes on with


def all_of(stacks: tuple[Stack, ...]) -> tuple[Stack, ...]:
    """All that a checkpoint holds."""
    return stacks


def picked(wanted: Wanted, stacks: tuple[Stack, ...]) -> tuple[Stack, ...]:
    """What is wanted of stacks that nobody has examined yet, which may not have it."""
    try:
        return wanted(stacks)
    except checkpoints.STRANGE as error:
        raise checkpoints.DamagedError(f"it does not hold what a checkpoint does: {reason(error)}") from None


class DamagedCheckpointError(RecordError):
    """A checkpoint that is not whole; `what` says so without advice."""

    what = ""


@dataclass
class Record:
    """A run directory. `seconds` counts the time spent in it, over all its sessions."""

    folder: Path
    settings: Settings
    seconds: float = 0.0
    since: float = field(default_factory=time.monotonic)
    tell: Callable[[str], None] = field(default=lambda sentence: None, compare=False)  # whoever wants to hear
    sums: dict[str, list[str]] | None = field(default=None, compare=False)  # what the manifest lists, once it is read

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint.safetensors"

    @property
    def earlier(self) -> Path:
        """The checkpoint before the last one."""
        return self.folder / "earlier.safetensors"

    @property
    def summary(self) -> Path:
        return self.folder / "summary.json"

    @property
    def finished(self) -> bool:
        return self.summary.exists()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes out; the system forgets the lock when this process ends, however it ends. One that only
        looks whether it may write here is waited for."""
        try:
            import fcntl
        except ImportError:  # not on this system
            yield
            return
        handle = os.open(self.folder, os.O_RDONLY)
        try:
            patience = time.monotonic() + WAIT
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if time.monotonic() > patience:
                        raise RecordError(
                            f"{self.folder} is in use by another process; wait for it, or stop it"
                        ) from None
                    time.sleep(0.02)
                    continue
                except OSError:
                    pass  # a file system without locks
                break
            yield
        finally:
            os.close(handle)

    def elapsed(self) -> float:
        return self.seconds + time.monotonic() - self.since

    def write(self, name: str, content: bytes) -> None:
        """Write a file beside its place, list it in the manifest, then move it there. What a kill leaves behind, the
        next one writes over; in between, the manifest allows the file as it was and as it will be.

        Bytes, because what libraries do with a path (other temporary names, other access rights) is their own affair.
        """
        path = self.folder / name
        try:
            part = put(path, content)
            self.enlist(name, content)
            if path == self.checkpoint and path.exists():
                path.replace(self.earlier)
            settle(part, path)
        except OSError as error:
            for part in (beside(path), beside(self.folder / files.MANIFEST)):
                with suppress(OSError):
                    part.unlink()
            advice = f"what was saved before is whole: make room, then `shoal resume {self.folder}`"
            if not (self.folder / "settings.toml").exists():
                advice = "make room, or choose another folder as `out`"
            raise RecordError(f"cannot write {path}: {reason(error)}; {advice}") from None

    def enlist(self, name: str, content: bytes) -> None:
        """Write the manifest with the checksum that a file will have, beside the one that it has. With the summary, the
        last file of a run, all others are as they stay."""
        if self.sums is None:
            self.sums = files.listed(self.folder)
        self.sums = {
            other: sums[-1:] if name == self.summary.name else sums
            for other, sums in self.sums.items()
            if (self.folder / other).exists()
        }
        self.sums[name] = [*self.sums.get(name, [])[-1:], files.digest(content)]
        if not (self.folder / name).exists():
            self.sums[name] = self.sums[name][-1:]
        place = self.folder / files.MANIFEST
        settle(put(place, files.manifest(self.sums)), place)

    def again(self, kernel: str) -> None:
        """Note in about.json that the run goes on, with which code, and what takes the steps; say so if that is another
        than before."""
        made = content(self.folder / "about.json")
        now = {**about(), "kernel": kernel}
        sessions = sessions_of(made)
        if changed := difference(sessions[-1], now):
            self.tell(f"the run goes on with {changed}; last bits may differ from those of an unbroken run")
        names = ("started", "commit", "python", "packages", "cpu", "kernel")
        made["resumed"] = [*sessions[1:], {name: now[name] for name in names}]
        self.write("about.json", text(made))

    def own(self) -> None:
        """Raise if the folder's settings are of another run."""
        place = self.folder / "settings.toml"
        if not place.exists():  # a start that is kept has none
            return
        there = raw_settings(self.folder, verified=False)
        if (
            there != toml(self.settings).encode()
            and reopen(self.folder, own=self.settings).settings.identity() != self.settings.identity()
        ):
            raise RecordError(
                f"{place} has other settings than the run that was about to begin there; choose another folder as `out`"
            )

    def adopt(self) -> None:
        """List the settings as they are: the user may have changed what of them changes no result."""
        place = self.folder / "settings.toml"
        there = raw_settings(self.folder, verified=False) if place.exists() else b""
        if there and files.digest(there) not in files.listed(self.folder).get(place.name, [files.digest(there)]):
            self.enlist(place.name, there)

    def note(self, **facts: Any) -> None:
        """Add facts of a run to about.json."""
        self.write("about.json", text({**content(self.folder / "about.json"), **facts}))

    def save(self, stacks: Sequence[Stack]) -> None:
        """Write the checkpoint. The one before is kept beside it. What is no number is never saved."""
        for kind in stacks:
            if (bad := unfit(kind, (PARAMS,))).any():
                lane = kind.lanes[int(bad.nonzero()[0])]
                raise RecordError(
                    f"{self.checkpoint} is not written: weights of agent {lane.agent} of seed {lane.seed} are not "
                    "numbers; what was saved before stays"
                )
        content = checkpoints.packed(stacks, self.settings.identity(), self.elapsed())
        self.write(self.checkpoint.name, content)

    def load(self, fleet: Sequence[World], wanted: Wanted = all_of) -> tuple[Stack, ...] | None:
        """The stacks of the last checkpoint that is whole, or None if there is none yet. All that is `wanted` of them
        must be what a run of these worlds can hold: nothing is given out that was not examined."""
        of_today(self.folder)
        if not self.earlier.exists():
            return self.load_one(self.checkpoint, fleet, wanted) if self.checkpoint.exists() else None
        try:
            if self.checkpoint.exists():
                return self.load_one(self.checkpoint, fleet, wanted)
            damage = f"{self.checkpoint} is not there"  # killed between two moves
        except DamagedCheckpointError as error:
            damage = error.what
        found = self.load_one(self.earlier, fleet, wanted)
        # The next one is written beside this one, not beside what is damaged.
        try:
            settle(self.earlier, self.checkpoint)
        except OSError as error:
            raise RecordError(f"cannot move {self.earlier} to {self.checkpoint}: {reason(error)}") from None
        self.tell(f"{damage}; going on from the checkpoint before it")
        return found

    def load_one(self, place: Path, fleet: Sequence[World], wanted: Wanted) -> tuple[Stack, ...]:
        """The stacks of a checkpoint, examined."""
        try:
            saved = checkpoints.opened(place, fleet[0].device)
        except checkpoints.DamagedError as error:
            raise self.damaged(place, error) from None
        if saved.identity != self.settings.identity():
            raise RecordError(
                f"{place} belongs to other settings than {self.folder / 'settings.toml'}; "
                "restore the settings as they were, or start a new run"
            )
        try:
            seconds, stacks = saved.seconds, picked(wanted, saved.stacks(self.settings.learner.epochs))
            examined(fleet, stacks)
        except checkpoints.DamagedError as error:
            raise self.damaged(place, error) from None
        self.seconds, self.since = seconds, time.monotonic()
        return stacks

    def damaged(self, place: Path, why: object) -> "DamagedCheckpointError":
        advice = f"delete it and `shoal resume {self.folder}` starts again"
        if self.finished:
            advice = f"make the run again with `shoal run {self.folder / 'settings.toml'}`"
        error = DamagedCheckpointError(f"{place} is damaged ({why}); {advice}")
        error.what = f"{place} is damaged ({why})"
        return error

    def table(self, name: str, table: pl.DataFrame) -> None:
        content = io.BytesIO()
        table.write_parquet(content)
        self.write(f"{name}.parquet", content.getvalue())

    def forget(self) -> None:
        """A finished run has one checkpoint."""
        try:
            self.earlier.unlink(missing_ok=True)
        except OSError as error:
            raise RecordError(f"cannot remove {self.earlier}: {reason(error)}; `shoal resume` ends the run") from None


def create(folder: str | Path, settings: Settings) -> Record:
    """A new run directory. One that exists is never written over.

    >>> import shoal
    >>> record = shoal.create("runs/mine", shoal.Settings(dataset="digits"))
    >>> sorted(path.name for path in record.folder.iterdir()), record.finished
    (['about.json', 'manifest.json', 'settings.toml'], False)
    """
    folder = Path(folder)
    record = Record(folder, settings)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with record.alone():  # nobody else may look or write between our look and our writing
            begin(record)
    except FileExistsError:
        raise RecordError(f"{folder} is a file; choose another folder as `out`") from None
    except OSError as error:
        raise RecordError(f"cannot make the folder {folder}: {reason(error)}; choose another as `out`") from None
    return record


def begin(record: Record) -> None:
    """Write the first files of a run, if the folder holds none."""
    folder = record.folder
    names = {path.name for path in folder.iterdir()}
    if "summary.json" in names:
        raise RecordError(f"{folder} holds a finished run; choose another folder as `out`, or remove it")
    if "settings.toml" in names:
        raise RecordError(
            f"{folder} holds an unfinished run; go on with `shoal resume {folder}`, with its own settings, or choose "
            "another folder as `out`"
        )
    # What a kill further down can leave, which is no run yet.
    left = {"about.json.part", "settings.toml.part", files.MANIFEST, f"{files.MANIFEST}.part"}
    if "about.json" in names and "shoal" in content(folder / "about.json"):
        left.add("about.json")
    if names - left:
        raise RecordError(f"{folder} is not empty, and holds no run; choose another folder as `out`")
    record.write("about.json", text({**about(), "identity": record.settings.identity()}))
    record.write("settings.toml", toml(record.settings).encode())
    raw = parsed(folder / "settings.toml")
    if loads(raw, folder):  # whoever begins a run may go on with it
        remember(raw)


def reopen(folder: str | Path, trust: bool = False, own: Settings | None = None) -> Record:
    """A run directory that exists. What its settings would load needs `trust`, unless this user has begun it, or
    settings of one's `own` name it too.

    >>> import shoal
    >>> before = shoal.create("runs/mine", shoal.Settings(dataset="digits", agents=3))
    >>> shoal.reopen("runs/mine").settings.agents
    3
    """
    folder = Path(folder)
    if not is_there(folder / "settings.toml"):
        raise RecordError(f"{folder} is not a run directory: it has no settings.toml; `shoal run` makes one")
    made = content(folder / "about.json")
    finished = (folder / "summary.json").exists()
    # A finished run only needs to be readable; an unfinished one would mix two versions' results.
    if not finished and (made.get("format"), made.get("shoal")) != (FORMAT, shoal.__version__):
        raise RecordError(
            f"{folder} was made by shoal {made.get('shoal')} (format {made.get('format')}), this is shoal "
            f"{shoal.__version__} (format {FORMAT}); continue it with that version, or start a new run"
        )
    raw_settings(folder, verified=finished)
    try:
        raw = parsed(folder / "settings.toml")
        network = raw.get("network")
        graph = network.get("graph") if isinstance(network, dict) else network
        if isinstance(graph, str) and is_file(graph):
            raise SettingsError(
                f'network.graph = "{graph}" is a file, and a run directory holds its edges itself; write them as '
                'network.edges, with graph = "edges"'
            )
        words = [] if own is None else [f"={text}" for _, text in strings(tomllib.loads(toml(own)))]
        allow(raw, folder / "settings.toml", words, trust)
        if own is None:
            vet(raw)
        rows.bring(folder, str(raw.get("dataset")))
        settings = resolve(raw)
    except UntrustedError:
        raise
    except SettingsError as error:
        raise RecordError(f"{folder / 'settings.toml'}: {error}") from None
    return Record(folder, settings)
