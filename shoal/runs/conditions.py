"""What links and agents were like in a run: what became of mail on every link, how old what agents know of each other
is, and how far their weights are from each other."""

from collections.abc import Sequence

import numpy as np
import polars as pl
import torch

from shoal.agents.stack import Stack
from shoal.data.tasks import JOINT
from shoal.letters.ledger import Ledger
from shoal.letters.mail import ABSENT, ACCEPTED, LOST, UNDER_WAY, UNSENT
from shoal.settings.groups import Settings

EDGE = ["seed", "sender", "receiver"]
COUNTS = ("sent", "delivered", "late", "lost", "refused", "under_way", "kept_back")


def links(settings: Settings, ledger: Ledger, until: int | None = None) -> pl.DataFrame:
    """A row per directed link over which mail was posted: how many messages were sent, delivered at once, delivered
    late, lost (also because their receiver was absent), refused, still under way, and kept back; and the mean age of
    what its receiver knew (`age`), in epochs.

    At every epoch from the first message over the link on, the age is how long ago the newest message was sent that its
    receiver had accepted by then; before there is any, since that first message. `until` is when the run ends.
    """
    words = np.array(ledger.words or [""], np.str_)
    names = ("seed", "sender", "receiver", "task", "epoch", "verdict", "late")
    columns = {name: ledger.rows[:, at] for name, at in zip(names, (0, 3, 4, 1, 2, 10, 11), strict=True)}
    epochs = settings.learner.epochs
    end = settings.tasks.count * epochs if until is None else until
    verdict = words[columns["verdict"]]
    accepted, unsent = verdict == ACCEPTED, np.isin(verdict, UNSENT)
    lost, flying = np.isin(verdict, (LOST, ABSENT)), verdict == UNDER_WAY
    sent = columns["task"] * epochs + columns["epoch"]
    table = pl.DataFrame(
        {
            **{name: columns[name] for name in EDGE},
            "at": sent,
            "seen": sent + columns["late"],
            "sent": ~unsent,
            "delivered": accepted & (columns["late"] == 0),
            "late": accepted & (columns["late"] > 0),
            "lost": lost,
            "refused": ~(accepted | unsent | lost | flying),
            "under_way": flying,
            "kept_back": np.where(unsent, ledger.messages, 0),
            "accepted": accepted,
        }
    )
    counted = table.group_by(EDGE).agg(
        *(pl.col(name).sum().cast(pl.Int64) for name in COUNTS), first=pl.col("at").min()
    )
    # What each link knows changes when something newer is accepted: between two such moments it grows older.
    steps = (
        table.filter("accepted")
        .group_by(*EDGE, "seen")
        .agg(pl.col("at").max())
        .sort(*EDGE, "seen")
        .with_columns(pl.col("at").cum_max().over(EDGE))
    )
    starts = counted.select(*EDGE, seen=pl.col("first"), at=pl.col("first"))
    spans = (
        pl.concat([starts, steps.select(*EDGE, "seen", "at")])
        .sort(*EDGE, "seen", "at")
        .with_columns(then=pl.col("seen").shift(-1).over(EDGE).fill_null(end).clip(upper_bound=end))
        .with_columns(length=(pl.col("then") - pl.col("seen")).clip(lower_bound=0))
        # The mean age between two moments is the age in the middle.
        .with_columns(area=pl.col("length") * ((pl.col("seen") + pl.col("then")) / 2 - pl.col("at")))
    )
    ages = spans.group_by(EDGE).agg(age=pl.col("area").sum() / pl.col("length").sum())
    found = counted.drop("first").join(ages, on=EDGE, how="left").with_columns(pl.col("age").fill_nan(None))
    return found.sort(EDGE)


def weathered(settings: Settings, ledger: Ledger) -> dict[str, float | int | None]:
    """What a summary says of all links together, where something can befall mail or agents."""
    table = links(settings, ledger)
    found = {name: int(table[name].sum()) for name in ("delivered", "late", "lost", "under_way")}
    age = table["age"].mean() if len(table) else None
    return {**found, "information_age": None if age is None else round(float(age), 4)}  # type: ignore[arg-type]


def consensus(settings: Settings, stacks: Sequence[Stack], units: Sequence[dict[str, int]]) -> pl.DataFrame:
    """A row per seed and kind of nets at the end of a task: how far the weights that agents have in common are from
    their mean, on average over agents (`distance`), and the norm of that mean. Kinds whose nets are of one shape are
    one; kinds that have no weights in common have no row."""
    groups: dict[tuple[object, ...], list[tuple[str, Stack, dict[str, int]]]] = {}
    for name, stack, body in zip(settings.members(), stacks, units, strict=True):
        own = settings.of(name)
        shape = own.model, *own.net.shape.values()
        groups.setdefault(shape, []).append((name, stack, body))
    rows = []
    for several in groups.values():
        lanes = [lane for _, stack, _ in several for lane in stack.lanes]
        if any(lane.agent == JOINT for lane in lanes) or not all(body for _, _, body in several):
            continue
        flat = torch.cat([weights(stack, body) for _, stack, body in several])
        gone = torch.cat([stack.gone for _, stack, _ in several])
        for seed in sorted({lane.seed for lane in lanes}):
            mine = [at for at, lane in enumerate(lanes) if lane.seed == seed and not gone[at]]
            mine.sort(key=lambda at: lanes[at].agent)
            if not mine:
                continue
            here = flat[mine].double()
            mean = here.mean(0)
            distance = float((here - mean).norm(dim=1).mean())
            kinds = "+".join(name for name, _, _ in several)
            rows.append((seed, several[0][1].task - 1, kinds, len(mine), distance, float(mean.norm())))
    types = {"seed": pl.Int64, "task": pl.Int64, "kind": pl.String, "agents": pl.Int64}
    return pl.DataFrame(rows, {**types, "distance": pl.Float64, "norm": pl.Float64}, orient="row")


def weights(stack: Stack, body: dict[str, int]) -> torch.Tensor:
    """What all lanes of a stack have in common with others, [L, n]."""
    return torch.cat([stack.params[name][:, :units].flatten(1).cpu() for name, units in sorted(body.items())], 1)
