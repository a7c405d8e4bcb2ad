"""FedCurv without a server: averaging, and a pull to what matters to neighbours."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import Tensor

from shoal.agents.stack import Stack
from shoal.agents.state import State
from shoal.agents.world import World
from shoal.errors import SettingsError
from shoal.learners.additions import Addition, penalised, tangent, trains_body
from shoal.learners.fisher import fisher, snapshot
from shoal.learners.step import Frame, Part, Tensors
from shoal.letters.bundle import Bundle
from shoal.letters.mail import Mail, by_receiver
from shoal.mail.post import Post
from shoal.models.contract import body_units
from shoal.settings.groups import Settings
from shoal.sharing.arrived import combined
from shoal.sharing.body import write_all
from shoal.sharing.codecs import NONE
from shoal.sharing.compress import COPIES, DIFFERENCE, opened
from shoal.sharing.federated import Federated, models
from shoal.sharing.penalty import remembered, scale


class FedCurv(Federated):
    """Averaging, and a pull to each neighbour's weights where they matter to it (Shoham et al. 2019)."""

    copies: ClassVar[int] = 2
    example: ClassVar[Mapping[str, Any]] = {"every": 2, "samples": 8}
    mode: Literal["fedcurv"] = "fedcurv"
    mu: NonNegativeFloat = Field(1.0, description="strength of the pull")
    fisher: Literal["sample", "batch", "frozen"] = Field(
        "sample",
        description="what matters: squared gradients per image, per batch, or (the paper's modular nets) nothing",
    )
    samples: PositiveInt = Field(64, description="images that fisher = sample looks at")
    scaling: Literal["once", "task"] = Field(
        "once", description="added to the mean loss once, or once per task in the batch and divided by its images"
    )

    def suits(self, settings: Settings) -> None:
        """What matters is sent once, and means something only if all of it is."""
        if self.compress not in (NONE, "int8") or self.way == COPIES:
            raise SettingsError(
                f"mode `fedcurv` can send what matters as int8 in the difference form or as it is, got compress = "
                f"{self.compress} in form {self.way}; use compress = int8, or another mode"
            )
        super().suits(settings)

    def answer(self, post: Post, questions: Sequence[Mail]) -> Sequence[Mail]:
        """Everybody's modules, and how much each weight matters to it, to everybody's neighbours."""
        matters = fisher(post.world, post.stack, self.fisher, self.samples)
        return models(post, questions, snapshot(post.world, post.stack), matters)

    def absorb(self, post: Post, questions: Sequence[Mail], answers: Sequence[Mail]) -> None:
        """The mean over oneself and what has arrived; and sum_j F_j and sum_j F_j w_j, which is all that the sum over
        neighbours of F_j (w - w_j)^2 needs for its gradient. What came earlier is forgotten."""
        state = remembered(post, ("sum", "moment"))
        write_all(post.stack, *combined(post, questions, answers))
        if isinstance(answers, Bundle):
            self.remember_all(post, answers, state)
            return
        if self.way == DIFFERENCE:
            answers = opened(post, self, answers)
        for lane, mails in by_receiver(answers).items():
            row = post.world.row[lane]
            state["on"][row] = 1
            for name in post.world.model.body:
                total, moment = state[f"sum.{name}"][row].zero_(), state[f"moment.{name}"][row].zero_()
                for mail in mails:
                    at = mail.payload["modules"].long()
                    matters, value = mail.payload[f"fisher.{name}"], mail.payload[name]
                    total[at] += matters
                    moment[at] += matters * value

    def remember_all(self, post: Post, bundle: Bundle, state: State) -> None:
        """The same of a bundle: of every receiver the first mail, then the second, and so on."""
        count = body_units(post.world.model)
        senders, receivers = torch.from_numpy(bundle.first // count), post.rows(bundle.links.receivers)
        turns = [torch.from_numpy(turn) for turn in in_turn(receivers)]
        rows = torch.from_numpy(receivers)
        state["on"][rows] = 1
        for name in post.world.model.body:
            value, matters = (bundle.content[key].unflatten(0, (-1, count)) for key in (name, f"fisher.{name}"))
            weighed = matters * value
            for word, what in (("sum", matters), ("moment", weighed)):
                total = state[f"{word}.{name}"]
                total[rows] = 0
                for turn in turns:
                    total[rows[turn]] += what[senders[turn]]

    def additions(self) -> tuple[Addition, ...]:
        return (penalised(self.owner, self.acts, self.penalty, self.pull),)

    def acts(self, world: World, stack: Stack, parts: Mapping[str, Part]) -> bool:
        return "on" in stack.of(self.mode) and trains_body(world, parts)

    def penalty(self, frame: Frame) -> Tensor:
        """One agent's mu times the sum over neighbours and weights of F_j (w - w_j)^2, as its tangent: the gradient is
        all that a step needs, and half the work."""
        return tangent(frame, self.pull(frame))

    def pull(self, frame: Frame) -> Tensors:
        factor, found = 2 * self.mu * frame.state["on"] * scale(self.scaling, frame.batch), {}
        for name in frame.model.body:
            matters, moment = frame.state[f"sum.{name}"], frame.state[f"moment.{name}"]
            found[name] = factor * (matters * frame.free[name][: len(matters)] - moment)
        return found


def in_turn(receivers: np.ndarray) -> list[np.ndarray]:
    """Places of the first mail of every receiver, of the second, and so on."""
    order = np.argsort(receivers, kind="stable")
    sorted_ = receivers[order]
    turn = np.arange(len(order)) - np.searchsorted(sorted_, sorted_)
    return [order[turn == at] for at in range(int(turn.max(initial=-1)) + 1)]
