"""Carriage: what becomes of mail between its sender and its receiver, and when it is there.

A link can be down, lose mail or be slow, and a receiver can be absent when it comes. Where agents have clocks of their
own, mail takes seconds: it waits until its link is free, and then for as long as its bytes take.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from shoal.data.tasks import Lane
from shoal.letters.bundle import Bundle
from shoal.letters.mail import ABSENT, ACCEPTED, DOWN, LOST, Mail
from shoal.settings.conditions import NEVER

if TYPE_CHECKING:
    from shoal.mail.post import Post


def fates(post: "Post", bundle: Bundle) -> tuple[list[str], np.ndarray | None]:
    """What becomes of each mail of a bundle over links that have no limits, as filters, `carried` and `met` would say
    of each; empty: all of it is accepted, as far as its sender can know. And when it is due; None: all of it at
    once."""
    weather, links = post.world.weather(post.mode), bundle.links
    if post.own:
        lost = weather.lost(post.when)[links.places] if weather.lossy else np.zeros(0, bool)
        return np.where(lost, LOST, ACCEPTED).tolist() if lost.any() else [], carried_all(post, bundle)
    if not (weather.lossy or weather.breaks or weather.slow or post.world.gaps):
        return [], None
    found, late = np.full(len(links), ACCEPTED, dtype=object), np.zeros(len(links), np.int64)
    if weather.slow:
        late = weather.delays(post.when)[links.places]
    due = np.where(late > 0, post.now + late, 0)
    if post.world.gaps:
        pairs = list(zip(links.receivers.tolist(), late.tolist(), strict=True))
        waits = {pair: met(post, links.peers[pair[0]], pair[1]) for pair in set(pairs)}
        back = np.array([waits[pair][0] for pair in pairs], np.int64)
        found[:] = [waits[pair][1] for pair in pairs]
        due = np.where(back > 0, back, due)
    if weather.lossy:
        found[weather.lost(post.when)[links.places]] = LOST
    if weather.breaks:
        found[weather.down(post.when)[links.places]] = DOWN
    due[(found == LOST) | (found == DOWN)] = 0
    verdicts: list[str] = found.tolist()
    return verdicts, due if due.any() else None


def met(post: "Post", receiver: Lane, late: int) -> tuple[int, str]:
    """Until when mail has to wait for its receiver, who may be absent when it comes after so many epochs (0: it does
    not wait), and its verdict: what does not wait for one that is absent is lost."""
    if not post.world.gaps:
        return 0, ACCEPTED
    back = post.world.back(receiver, post.when + late)
    if back == post.when + late:
        return 0, ACCEPTED
    if back == NEVER or post.world.fleet.presence.mail == "lost":
        return 0, ABSENT
    return back, ACCEPTED


# In seconds


def carried(post: "Post", mail: Mail) -> Mail:
    """A mail as its link carries it: it leaves when the link is free, an answer after its question has come, and is
    there when all of it has gone through."""
    if not post.asynchronous or post.world.instant:
        return mail
    ends = mail.sender, mail.receiver
    edge, leaves = post.world.edges[ends], max(post.time, post.asked_at.get(mail.reply, post.time))
    if edge.bandwidth is not None:
        leaves = through(post, *ends, leaves, mail.bytes / edge.bandwidth)
    return replace(mail, due=leaves + edge.latency)


def carried_all(post: "Post", bundle: Bundle) -> np.ndarray | None:
    """When links have carried each mail of a bundle, none of which replies to another, as `carried` says."""
    if not post.asynchronous or post.world.instant:
        return None
    found = np.empty(len(bundle))
    for at, weight in enumerate(bundle.bytes.tolist()):
        ends = bundle.ends(at)
        edge, leaves = post.world.edges[ends], post.time
        if edge.bandwidth is not None:
            leaves = through(post, *ends, leaves, weight / edge.bandwidth)
        found[at] = leaves + edge.latency
    return found


def through(post: "Post", sender: Lane, receiver: Lane, leaves: float, seconds: float) -> float:
    """When what would leave at a moment has gone through a link that it keeps busy for some seconds."""
    busy = post.stack.clock["busy"][post.world.row[sender]]
    place = post.world.receivers[sender].index(receiver)
    busy[place] = max(leaves, float(busy[place])) + seconds
    return float(busy[place])
