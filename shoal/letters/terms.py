"""Terms: what the policies of an edge come to, and which mail keeps them.

What mail holds its mode declares (`Sharing.carries`); mail of which nothing is declared may hold anything.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from shoal.data import Bank
from shoal.errors import SettingsError
from shoal.letters.mail import CLASS_FORBIDDEN, CLASS_UNSAID, CLASS_USED_UP, FORBIDDEN, UNDECLARED, Expected, Mail
from shoal.settings.policies import CLASSED, CONTENTS, Carries, Policy

if TYPE_CHECKING:
    from shoal.settings.groups import Settings
    from shoal.sharing.contract import Sharing


MANY = 2**40  # items, more than any policy allows


class Terms(NamedTuple):
    """What all policies of an edge come to."""

    allow: frozenset[str]
    classes: frozenset[int] = frozenset()  # of which nothing may leave
    per_class: int | None = None

    @property
    def by_class(self) -> bool:
        """Does it matter of which classes mail is?"""
        return bool(self.classes) or self.per_class is not None

    def refuses(self, carried: Carries | None) -> str:
        """Why mail that carries something may not leave, whatever is in it; empty: it may."""
        if carried is None:
            return "" if self.allow == CONTENTS.keys() and not self.by_class else UNDECLARED
        banned = [what for what in carried.what if what not in self.allow]
        if banned:
            return FORBIDDEN[banned[0]]
        return CLASS_UNSAID if self.by_class and not carried.classes and self.classed(carried) else ""

    @staticmethod
    def classed(carried: Carries | None) -> bool:
        """Is every item of it of a class?"""
        return carried is not None and any(what in CLASSED for what in carried.what)


def terms(settings: "Settings", bank: Bank, sender: int, receiver: int) -> Terms | None:
    """The terms of an edge from one agent to another; None: anything may leave over it."""
    ours = [
        one
        for one in settings.policy
        if (not one.agents or sender in one.agents) and (not one.to or receiver in one.to)
    ]
    allow = frozenset(CONTENTS)
    for one in ours:
        allow &= frozenset(CONTENTS if one.allow is None else one.allow) - frozenset(one.forbid)
    most = min((one.per_class for one in ours if one.per_class is not None), default=None)
    found = Terms(allow, frozenset(number for one in ours for number in numbers(one, bank)), most)
    return None if found == Terms(frozenset(CONTENTS)) else found


def numbers(policy: Policy, bank: Bank) -> list[int]:
    """The classes of which nothing may leave, by their numbers."""
    found = []
    for said in policy.forbid_classes:
        if said in bank.classes:
            found.append(bank.classes.index(str(said)))
        elif isinstance(said, int) and said < len(bank.classes):
            found.append(said)
        else:
            known = f"{bank.classes[0]} to {bank.classes[-1]}, or 0 to {len(bank.classes) - 1}"
            raise SettingsError(
                f"policy.forbid_classes has {said!r}, but the classes of `{bank.name}` are {known}; name one of these"
            )
    return found


def stops(ours: Terms | None, mode: "Sharing", left: np.ndarray | None, kind: str, counts: np.ndarray | None) -> str:
    """Why a message of a kind may not leave, with `counts` [classes] items of each class, where `left` of each have
    left already; empty: it may."""
    if ours is None:
        return ""
    carried = mode.carries(kind)
    if (why := ours.refuses(carried)) or counts is None or carried is None:
        return why
    if ours.classes and counts[list(ours.classes)].any():
        return CLASS_FORBIDDEN
    if ours.per_class is None or left is None or not Terms.classed(carried):
        return ""
    return CLASS_USED_UP if (counts + left > ours.per_class)[counts > 0].any() else ""


def counted(mode: "Sharing", mail: Mail, expected: Mapping[str, Expected], classes: int) -> np.ndarray | None:
    """How many items of each class a mail holds, [classes]; None: it does not say. What is said of a mail as a whole
    counts for each of its items."""
    carried = mode.carries(mail.kind)
    if carried is None or not carried.classes:
        return None
    want, tensor = expected.get(carried.classes), mail.payload.get(carried.classes)
    fits = want is not None and tensor is not None and tensor.ndim == len(want.shape) and not tensor.is_floating_point()
    said = tensor.long().numpy() if tensor is not None and fits else np.full(1, -1)
    if want is None or ((said < 0) | (said >= classes)).any():  # it says nothing that anybody could count on
        return np.full(classes, MANY)
    if want.shape[:1] != (None,):
        return np.isin(np.arange(classes), said) * max(1, mail.items)
    found = np.zeros(classes, np.int64)
    for own in said:
        found[np.unique(own)] += 1
    return found
