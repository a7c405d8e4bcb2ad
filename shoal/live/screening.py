"""Screening: what an agent makes of letters that have come, before its modes judge them.

A letter is read, must be an answer to a question or the first of its kind at a moment of its sender, and its link must
have been able to carry it. What is refused is noted with a word, and what it held is forgotten.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from safetensors import SafetensorError

from shoal.letters.mail import OVER_BUDGET, Envelope, Mail, unpack
from shoal.letters.table import Table
from shoal.letters.uses import Used
from shoal.live.office import HELD
from shoal.live.store import Come
from shoal.live.wire import REPEATED
from shoal.mail.filters import Load, Ways, stopped
from shoal.network.roads import Roads

if TYPE_CHECKING:
    from shoal.live.crew import LiveCrew

# What a receiver says of mail that its link may not carry, or that is dated before what came earlier.
BEYOND = {OVER_BUDGET: "beyond its budget"}
TOO_OFTEN = "too often"
BACKWARDS = "dated backwards"
BROKEN = "unreadable letter"
UNASKED = "not asked for"
TOO_MUCH = "too much waits"  # of this neighbour, for the modes that will read it


class Arrived(NamedTuple):
    """A letter that has come: from whom, its address, the question that it replies to, and its mail, if it is any
    good."""

    peer: int
    envelope: Envelope | None
    reply: str
    mail: Mail | None


def screened(crew: "LiveCrew", letters: Sequence[Come]) -> list[Arrived]:
    """Letters as they came, each with its mail if it can be read and its link may have carried it."""
    found, bad, waits = [], [], Counter[int]()
    for lying in crew.here.fleet[0][1].inbox:
        waits[lying.sender.agent] += lying.bytes
    for one in letters:
        envelope = Envelope(*one.slip["envelope"]) if one.slip["envelope"] else None
        reply = envelope.reply if envelope else one.slip["reply"]
        mail, why = None, TOO_MUCH if envelope and waits[one.peer] > HELD else ""
        if envelope and not why:
            try:
                mail = unpack(envelope, one.body)
            except (SafetensorError, ValueError, RuntimeError, OverflowError):
                why = BROKEN
        elif not envelope and crew.pending.get(reply) == one.peer:
            del crew.pending[reply]
        if mail and (why := untimely(crew, mail) or beyond(crew, mail)):
            mail = None
        waits[one.peer] += mail.bytes if mail else 0
        if why:
            crew.refused.append((one.peer, why))
            crew.desk.refuse(one.peer)
            bad.append(one.at)
        found.append(Arrived(one.peer, envelope, reply, mail))
    if bad:
        crew.desk.store.refused(bad)
    return found


def untimely(crew: "LiveCrew", mail: Mail) -> str:
    """Why a mail is no answer to a question of this agent where it must be one, or else the first of its kind at a
    moment of its sender; empty: it is. A sender's clock does not go back."""
    mode = next(one for one in crew.whole[0].settings.sharing if one.mode == mail.mode)
    if mode.both_ways and mail.kind not in mode.asking:
        if crew.pending.get(mail.reply) != mail.sender.agent:
            return UNASKED
        del crew.pending[mail.reply]
        return ""
    name, now = (mail.sender.agent, mail.mode, mail.kind), dated(crew, mail)
    last = crew.met.get(name, -1)
    crew.met[name] = max(now, last)
    return REPEATED if now == last else BACKWARDS if now < last else ""


def dated(crew: "LiveCrew", mail: Mail) -> int:
    """When a mail was sent, by its sender's clock."""
    return mail.task * crew.whole[0].settings.learner.epochs + mail.epoch


def beyond(crew: "LiveCrew", mail: Mail) -> str:
    """Why a link may not have carried a mail, by the receiver's own count; empty: it may. Clocks of a sender do not
    go backwards, so that nobody has a task's budget twice."""
    world, mode = crew.whole[0], next(one for one in crew.whole[0].settings.sharing if one.mode == mail.mode)
    ends = mail.sender, mail.receiver
    edges = world.at(mail.task, mail.epoch).edges
    if ends not in edges:
        return BEYOND[OVER_BUDGET]
    now = dated(crew, mail)
    use, own = crew.ledger.every.one(ends), crew.ledger.share(mail.mode).one(ends)
    if now < use.last:
        return BACKWARDS
    road = Roads([(mail.sender.seed, edges[ends]._replace(loss=0, delay=0, down=()))])
    ways = Ways(road, np.zeros(1, np.int64), mode, now, mail.task, Used.of([use]), Used.of([own]))
    why = stopped(ways, Load([mail.kind], np.array([[mail.floats, mail.bytes]])))[0]
    if why:
        return BEYOND.get(why, TOO_OFTEN)
    letter = Table.of([mail])
    crew.ledger.carry(mail.mode, letter.links, letter.weights, now, mail.task)
    return ""
