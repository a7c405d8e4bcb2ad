"""What one hostile agent of eight can do to the other seven: `python -m bench.attacks`.

The fleet is the digits experiment with two seeds; the last agent lies, in a sharing mode of its own, through the doors
that any mode has. What counts is the final accuracy of the seven others. Every result is a row of
docs/results/attacks.csv with the commit that made it, so that the table has a column for each edition; what is there
already is not measured again.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

import shoal
from bench import results
from shoal.configure.reading import EXPERIMENTS
from shoal.configure.reading import read as settings_of
from shoal.data.tasks import Lane
from shoal.errors import UserError
from shoal.letters.mail import Mail
from shoal.mail.post import Post
from shoal.rng import key
from shoal.settings.groups import Settings
from shoal.sharing.fedavg import FedAvg
from shoal.sharing.modmod import ModMod
from shoal.sharing.recv import Recv

FILE = results.ROOT / "docs" / "results" / "attacks.csv"
AGENTS, SEEDS = 8, 2
HOSTILE = AGENTS - 1
COPIES, GIANT, FLOOD = 50, 1e30, 2000
QUICK = ("seeds=1", "tasks.count=5", "tasks.initial=2", "learner.epochs=6", "net.width=8", "tasks.train=6")

Weights = dict[str, Tensor]


def flipped(post: Post, lane: Lane, own: Weights) -> Weights:
    return {name: -tensor for name, tensor in own.items()}


def flipped_tenfold(post: Post, lane: Lane, own: Weights) -> Weights:
    return {name: -10 * tensor for name, tensor in own.items()}


def noise(post: Post, lane: Lane, own: Weights) -> Weights:
    """Normal noise of standard deviation one, several times as large as weights are."""
    rng = key(*lane, "attack", post.stack.task, post.stack.epoch)
    return {name: torch.from_numpy(rng.standard_normal(tensor.shape)).float() for name, tensor in own.items()}


def zero(post: Post, lane: Lane, own: Weights) -> Weights:
    return {name: torch.zeros_like(tensor) for name, tensor in own.items()}


def giant(post: Post, lane: Lane, own: Weights) -> Weights:
    return {name: torch.full_like(tensor, GIANT) for name, tensor in own.items()}


# What a hostile agent says its weights are, and how often it says so in one exchange.
LIES: dict[str, tuple[Callable[[Post, Lane, Weights], Weights], int]] = {
    "sign-flipped weights": (flipped, 1),
    "sign-flipped weights times ten": (flipped_tenfold, 1),
    "noise": (noise, 1),
    "zero weights": (zero, 1),
    "fifty copies of zero weights": (zero, COPIES),
    "weights of 1e30": (giant, 1),
}
HONEST, SCORED, FLOODED = "honest", "a noise module with score 1e30", "a flood of 2,000 noise images"


def honest(mails: Sequence[Mail]) -> list[Mail]:
    """What the others have written."""
    return [mail for mail in mails if mail.sender.agent != HOSTILE]


def liars(post: Post) -> Iterator[tuple[int, Lane]]:
    """The rows of the hostile agents that are here, one of each seed."""
    return ((row, lane) for row, lane in enumerate(post.world.lanes) if lane.agent == HOSTILE)


class HostileFedAvg(FedAvg):
    """FedAvg in which the last agent lies about its weights."""

    mode: Literal["hostile-fedavg"] = "hostile-fedavg"  # type: ignore[assignment]
    attack: str = HONEST

    def answers_of(self, post: Post, questions: Sequence[Mail]) -> list[Mail]:
        mails = list(super().answers_of(post, questions))
        if self.attack == HONEST:
            return mails
        lie, copies = LIES[self.attack]
        told = honest(mails)
        for row, lane in liars(post):
            body = post.world.model.body
            own = {name: post.stack.params[name][row, :units].cpu().clone() for name, units in body.items()}
            count = max(body.values())
            payload = lie(post, lane, own) | {"modules": torch.arange(count, dtype=torch.int32)}
            others = [other for other in post.out(lane) for _ in range(copies)]
            told += [post.mail(lane, other, "model", payload, count) for other in others]
        return told


class HostileModMod(ModMod):
    """ModMod in which the last agent offers everybody a module of noise that promises more than any other."""

    mode: Literal["hostile-modmod"] = "hostile-modmod"  # type: ignore[assignment]
    attack: str = HONEST

    def answers_of(self, post: Post, questions: Sequence[Mail]) -> list[Mail]:
        mails = list(super().answers_of(post, questions))
        if self.attack == HONEST or post.stack.task <= post.world.settings.tasks.initial:
            return mails  # nobody has a module to offer yet
        lies = [self.lie(post, question) for question in questions if question.receiver.agent == HOSTILE]
        return honest(mails) + lies

    def lie(self, post: Post, question: Mail) -> Mail:
        """One module of noise, in the shape that its receiver expects."""
        rng = key(*question.receiver, "attack", post.stack.task, question.sender.agent)
        payload = {}
        for name, want in self.expects(post.world, "modules", question.receiver).items():
            shape = [1 if size is None else size for size in want.shape]
            drawn = rng.integers(0, want.below or 1, shape) if want.below else rng.standard_normal(shape)
            payload[name] = torch.from_numpy(drawn).to(want.dtype)
        payload["scores"] = torch.full((1,), GIANT)
        payload["sources"] = torch.full((1,), post.world.settings.tasks.initial, dtype=torch.int32)
        return post.reply(question, "modules", payload, 1)


class HostileRecv(Recv):
    """Recv in which the last agent answers every question with a flood of noise, in the class that was asked for."""

    mode: Literal["hostile-recv"] = "hostile-recv"  # type: ignore[assignment]
    attack: str = HONEST

    def answers_of(self, post: Post, questions: Sequence[Mail]) -> list[Mail]:
        mails = list(super().answers_of(post, questions))
        if self.attack == HONEST:
            return mails
        asked = (one for one in questions if one.receiver.agent == HOSTILE and len(one.payload["images"]))
        return honest(mails) + [self.lie(post, question) for question in asked]

    def lie(self, post: Post, question: Mail) -> Mail:
        """Images of noise for every query in turn."""
        rng = key(*question.receiver, "attack", post.stack.task, post.stack.epoch, question.sender.agent)
        images = question.payload["images"]
        peak = post.world.bank.peak
        drawn = torch.from_numpy(rng.integers(0, peak + 1, (FLOOD, *images.shape[1:]))).to(images.dtype)
        queries = torch.arange(FLOOD) % len(images)
        payload = {"images": drawn, "queries": queries.int(), "labels": question.payload["labels"][queries]}
        return post.reply(question, "answer", payload, FLOOD)


@dataclass(frozen=True)
class Trial:
    """A fleet with a hostile agent in it, or none."""

    model: str
    mode: str
    attack: str

    def settings(self, quick: bool = False) -> Settings:
        """The digits experiment with this mode."""
        hostile = {"fedavg": HostileFedAvg, "modmod": HostileModMod, "recv": HostileRecv}[self.mode]
        door = f"bench.attacks:{hostile.__name__}"
        words = [f"model={self.model}", f"agents={AGENTS}", f"seeds={SEEDS}", f"sharing={door}"]
        if quick:
            words += [*QUICK, *["sharing.hostile-recv.every=2"] * (self.mode == "recv")]
        plain = settings_of(EXPERIMENTS / "digits.toml", words)
        mode = plain.sharing[0].model_copy(update={"attack": self.attack})
        return plain.model_copy(update={"sharing": (mode,)})


MODELS = ("mlp", "modular-mlp")
TRIALS = (
    *(Trial(model, "fedavg", attack) for model in MODELS for attack in (HONEST, *LIES)),
    *(Trial("modular-mlp", "modmod", attack) for attack in (HONEST, SCORED)),
    *(Trial(model, "recv", attack) for model in MODELS for attack in (HONEST, FLOODED)),
)


def attacked(trial: Trial, quick: bool = False) -> dict[str, object]:
    """What became of the other agents: their final accuracy in %, over all tasks and seeds, that of each seed, and how
    many of them came to no end. `said` is why, if all did."""
    started = time.perf_counter()
    found: dict[str, object] = {"model": trial.model, "mode": trial.mode, "attack": trial.attack}
    (world,) = shoal.prepare(trial.settings(quick))
    try:
        stack = shoal.simulate(world)
    except UserError as error:
        ended = sum(lane.agent != HOSTILE for lane in world.lanes)
        return {**found, "accuracy": "", "seeds": "", "ended": ended, "said": str(error), **lasted(started)}
    final = stack.accuracy[:, -1, -1].double().mean(1) * 100
    seeds: dict[int, list[float]] = {}
    for lane, value in zip(stack.lanes, final.tolist(), strict=True):
        if lane.agent != HOSTILE:
            seeds.setdefault(lane.seed, []).append(value)
    alive = {seed: [one for one in values if one == one] for seed, values in seeds.items()}
    ended = sum(map(len, seeds.values())) - sum(map(len, alive.values()))
    means = [statistics.fmean(values) for values in alive.values() if values]
    accuracy = statistics.fmean(means) if means else ""
    each = " ".join(f"{one:.1f}" for one in means)
    return {**found, "accuracy": accuracy, "seeds": each, "ended": ended, "said": "", **lasted(started)}


def lasted(started: float) -> dict[str, float]:
    return {"seconds": round(time.perf_counter() - started, 1)}


def table(rows: Sequence[results.Row]) -> str:
    """The rows of docs/results/attacks.csv as a markdown table: final accuracy of the other seven agents in %, a column
    for each commit, in the order of the file, and a line for each attack, in the order of trials."""
    commits = list(dict.fromkeys(row["commit"] for row in rows))
    held = {(row["commit"], row["model"], row["mode"], row["attack"]): row for row in rows}
    known = {(row["mode"], row["attack"]) for row in rows}
    names = [name for name in dict.fromkeys((trial.mode, trial.attack) for trial in TRIALS) if name in known]
    lines = []
    for mode, attack in names:
        cells = [said(held.get((commit, model, mode, attack))) for commit in commits for model in MODELS]
        lines.append([mode, attack, *cells])
    titles = [f"{title}, {commit}" for commit in commits for title in ("monolithic", "modular")]
    return results.markdown(["mode", "the eighth agent", *titles], lines)


def said(row: results.Row | None) -> str:
    """One cell."""
    if row is None:
        return ""
    if row["accuracy"] == "":
        return "the fleet ends"
    ended = int(row["ended"])
    return f"{float(row['accuracy']):.1f}" + (f" ({ended} ended)" if ended else "")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.attacks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny fleets, to see that it works")
    parser.add_argument("--only", metavar="WORD", help="trials with this word in their model, mode or attack")
    parser.add_argument("--again", action="store_true", help="measure also what the file has of this commit")
    parser.add_argument("--out", type=Path, default=FILE, help="the CSV file (docs/results/attacks.csv)")
    given = parser.parse_args()
    stamp = results.stamp()
    rows: list[dict[str, object]] = [{**row} for row in results.read(given.out)]
    for trial in TRIALS:
        mine = {"model": trial.model, "mode": trial.mode, "attack": trial.attack, "commit": stamp["commit"]}
        if given.only and not any(given.only in word for word in (trial.model, trial.mode, trial.attack)):
            continue
        before = [row for row in rows if mine.items() <= row.items()]
        if before and not given.again:
            continue
        row = attacked(trial, given.quick) | stamp
        rows = [one for one in rows if one not in before] + [row]
        results.write(given.out, rows)
        print(trial.model, trial.mode, trial.attack, said(row), row["said"], f"({row['seconds']} s)", flush=True)
    print(table(results.read(given.out)))


if __name__ == "__main__":
    main()
