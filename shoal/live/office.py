"""The office of one agent: letters go into the outbox, from where couriers carry them, and what comes is handed out
turn by turn, as the journal says or, at its end, as it comes.
"""

import json
import logging
import random
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shoal.errors import Stopped, UserError
from shoal.letters.mail import Envelope
from shoal.live.store import EACH, FAREWELL, Come, Store, Waiting
from shoal.live.transport import KEPT, KNOWN, LATER, REFUSED, Transport
from shoal.live.wire import FALSE_NAME, NO_LETTER, REASONS, REPEATED, RefusedError, Slip, Terms, Turn, opened, sealed

AGAIN = (0.05, 10.0)  # seconds after which a letter that nobody has acknowledged is sent again: at first, and at most
PING = 5.0  # seconds without a letter after which a neighbour is told that this agent is there, at most
LOST = 300.0  # seconds without a sign of a neighbour after which nobody waits for it any more
LOOK = 0.5  # seconds between two looks for signs of which more do not count
HELD = 64 * 2**20  # bytes of a neighbour's letters that wait to be looked at, at most,
COUNT = 4096  # and how many they are
MANY = 2000  # refusals of one neighbour after which it rests
REST = 5.0, 3600.0  # seconds, at first and at most
LATEST = 2**52  # no neighbour sets the clock of letters to more: what is written after that must still be a number


@dataclass(frozen=True)
class Draft:
    """A letter that is to leave: an envelope and a body, or a word without either."""

    envelope: Envelope | None
    body: bytes = b""
    keep: str = ""  # what is kept of such while they wait (`Store.put`); empty: all of them
    reply: str = ""
    done: bool = False


@dataclass
class Link:
    """What is known of the line to a neighbour."""

    reached: float = 0.0  # when it last acknowledged something
    heard: float = 0.0  # when it last sent something
    silent: int = 0  # tries in a row without an answer
    quiet: float = 0.0  # seconds without anything new of it, of those in which this agent looked,
    deaf: float = 0.0  # and without an acknowledgement
    refusals: int = 0  # since it last had to rest
    rests: float = 0.0  # until when nothing of it is taken,
    rest: float = REST[0]  # and for how long the next time

    def refuse(self) -> None:
        """A neighbour that is sick rests, each time for longer, and is not banned."""
        self.refusals += 1
        if self.refusals >= MANY:
            self.refusals, self.rests = 0, time.monotonic() + self.rest
            self.rest = min(2 * self.rest, REST[1])


class Office:
    """Letters of one agent, in and out."""

    def __init__(
        self,
        store: Store,
        terms: Terms,
        transport: Transport | None,
        senders: Collection[int],
        receivers: Collection[int],
        stop: Callable[[], bool] = lambda: False,
        lost: float = LOST,
    ) -> None:
        self.store, self.terms, self.transport, self.stop = store, terms, transport, stop
        self.patience, self.looked = lost, time.monotonic()
        self.senders, self.receivers = frozenset(senders), frozenset(receivers)
        self.links = {peer: Link() for peer in sorted(self.senders | self.receivers)}
        self.sent: dict[int, int] = {}  # how many letters have been written to each neighbour,
        self.lamport = self.n = 0  # the clock of letters, and the next line of the journal
        self.asked: Mapping[str, int] | None = None  # questions without an answer, where clocks are free
        self.closed = False
        self.missing: list[int] = []  # neighbours whose letters are waited for, in lock-step
        self.news = threading.Condition()
        self.wake = {peer: threading.Event() for peer in self.links}
        self.couriers: list[threading.Thread] = []

    # Beginning and end

    def open(self) -> None:
        """Begin to carry letters."""
        if self.transport is None:
            return
        self.transport.open(self.deliver)
        for peer in self.receivers:
            courier = threading.Thread(target=self.carry, args=(peer,), daemon=True, name=f"courier to {peer}")
            self.couriers.append(courier)
            courier.start()

    def close(self) -> None:
        """Carry no more."""
        self.closed = True
        for event in self.wake.values():
            event.set()
        if self.transport is not None:
            self.transport.close()
        for courier in self.couriers:
            courier.join(5)

    @property
    def state(self) -> dict[str, Any]:
        """What is counted, for the note beside a checkpoint."""
        return {"sent": self.sent, "lamport": self.lamport, "n": self.n}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what was counted."""
        self.sent = {int(peer): count for peer, count in state["sent"].items()}
        self.lamport, self.n = state["lamport"], state["n"]

    @property
    def replaying(self) -> bool:
        """Does the journal still say what comes?"""
        return self.store.entry(self.n) is not None

    # Out

    def post(self, turn: Turn, drafts: Mapping[int, Sequence[Draft]]) -> None:
        """Let letters leave; those to one neighbour are numbered, and say how many of the turn there are."""
        rows = []
        for peer, mine in drafts.items():
            if peer not in self.receivers:  # it has left
                continue
            of = sum(one.envelope is not None for one in mine)
            for part, draft in enumerate(mine):
                self.lamport += 1
                self.sent[peer] = number = self.sent.get(peer, 0) + 1
                slip = Slip(
                    *(self.terms.run, self.terms.settings, self.terms.me, peer, number, self.lamport, turn),
                    *(part, of, draft.envelope, draft.reply, draft.done),
                )
                what = f"{draft.envelope.mode}/{draft.envelope.kind}" if draft.envelope else FAREWELL * draft.done
                rows.append((peer, number, what, draft.keep, sealed(slip, draft.body)))
        if rows:
            self.store.put(rows)
            for peer in drafts:
                if peer in self.wake:
                    self.wake[peer].set()

    def carry(self, peer: int) -> None:
        """What the courier to a neighbour does: the first letter that waits, again and again until it has come. Where
        none does, an empty frame now and then says that this agent is there."""
        assert self.transport is not None
        link, wait = self.links[peer], AGAIN[0]
        while not self.closed:
            letter = self.store.next(peer)
            if letter is None and self.called(peer, min(PING, self.patience / 10)):
                continue
            answer = self.transport.send(peer, letter.frame if letter else b"")
            if self.closed:
                return
            if answer not in (KEPT, KNOWN) and not (answer and answer.startswith(REFUSED)):
                link.silent += 1
                wait = AGAIN[0] if self.called(peer, wait * random.uniform(0.5, 1.0)) else min(2 * wait, AGAIN[1])
                continue
            wait, link.silent, link.deaf, link.reached = AGAIN[0], 0, 0.0, time.monotonic()
            try:
                if letter:
                    self.acknowledged(letter, answer)
            except UserError as error:  # a full disk: the letter stays, and its receiver knows it when it comes again
                logging.getLogger("shoal.live").warning("%s", error)
                self.called(peer, AGAIN[1])

    def called(self, peer: int, seconds: float) -> bool:
        """Wait; True: something is to be sent to a neighbour, or has come of it."""
        found = self.wake[peer].wait(seconds)
        self.wake[peer].clear()
        return found

    def acknowledged(self, letter: Waiting, answer: bytes) -> None:
        """Note that a letter is kept, or refused: its receiver's word for that is one of ours, or not repeated."""
        refused = ""
        if answer.startswith(REFUSED):
            word = answer.removeprefix(REFUSED).decode("ascii", "replace")
            refused = word if word in REASONS else "another reason"
        self.store.acknowledged(letter, refused)
        if refused:
            self.store.refuse(letter.peer, f"refused by it: {refused}", time.time())
        with self.news:
            self.news.notify_all()

    # In

    def deliver(self, peer: int, frame: bytes) -> bytes:
        """Take a frame that has come over the line of a neighbour: it is in the inbox before this returns. Where it
        cannot be, because the disk is full, say, it stays with its sender, and the agent goes on."""
        try:
            return self.taken_in(peer, frame)
        except UserError as error:
            logging.getLogger("shoal.live").warning("a letter of agent %s is not kept: %s", peer, error)
            return LATER

    def taken_in(self, peer: int, frame: bytes) -> bytes:
        """What is answered to a frame."""
        if peer not in self.senders:
            return REFUSED + FALSE_NAME.encode()
        link = self.links[peer]
        if self.closed:
            return LATER
        now = time.monotonic()
        if not frame:  # its sender is there, and has nothing to say
            self.hear(peer)
            return KNOWN
        if now < link.rests:
            return LATER
        try:
            slip, body = opened(frame, peer, self.terms)
            size, count = self.store.held(peer)
            if size + len(frame) > HELD or count >= COUNT or not self.expected(slip):
                return LATER
            written = json.dumps({"turn": slip.turn, "envelope": slip.envelope, **about(slip)})
            fresh = self.store.keep(peer, slip.number, written, body, slip.done)
        except RefusedError as error:
            link.refuse()
            self.store.refuse(peer, str(error), time.time())
            return REFUSED + str(error).encode()
        self.hear(peer, fresh)
        if not fresh:
            self.store.refuse(peer, REPEATED, time.time())
            return KNOWN
        with self.news:
            self.news.notify_all()
        return KEPT

    def hear(self, peer: int, fresh: bool = True) -> None:
        """A neighbour is there: what waits for it may go."""
        link = self.links[peer]
        link.heard, link.silent, link.quiet = time.monotonic(), 0, 0.0 if fresh else link.quiet
        self.wake[peer].set()

    def expected(self, slip: Slip) -> bool:
        """May a letter that holds nothing be kept? Where clocks are free, it says that a question has no answer, or
        once that a stream is learned; what is still being done again may ask the question later."""
        if self.asked is None or slip.envelope or self.asked.get(slip.reply) == slip.sender:
            return True
        if slip.done and slip.sender not in self.store.done():
            return True
        if self.replaying:
            return False
        raise RefusedError(NO_LETTER)

    def whole_turn(self, turn: Turn, senders: Sequence[int]) -> list[Come]:
        """All letters that some neighbours have written at a turn, when all of them have come: lock-step."""
        if self.replaying:
            return self.taken(str(tuple(turn)), "all")
        senders = [peer for peer in senders if peer in self.senders]
        while True:
            over = self.store.done()  # they have diverged, and what they had written before has come before
            mine = [one for one in self.store.untaken() if Turn(*one.slip["turn"]) == turn]
            there: dict[int, list[Come]] = {peer: [] for peer in senders}
            for one in mine:
                there.setdefault(one.peer, []).append(one)
            self.missing = [
                peer
                for peer, come in there.items()
                if len(come) < (max(1, come[0].slip["of"]) if come else peer not in over)
            ]
            if not self.missing:
                ordered = [one for peer in senders for one in there[peer]]
                return self.take(str(tuple(turn)), "all", ordered)
            self.wait(1.0)

    def come(self, turn: str, wanted: Callable[[], bool] | None = None, patience: float = 0.0) -> list[Come] | None:
        """What has come since it was last asked; with `wanted`, what comes until that is no longer true or patience is
        over. None: nothing has, and there is nothing to wait for."""
        entry = self.store.entry(self.n)
        if entry is not None:
            if (entry.turn, entry.what) == (turn, "some"):
                return self.taken(turn, "some")
            self.over(turn, wanted)
            return None
        until = time.monotonic() + patience
        while True:
            if found := self.store.untaken():
                return self.take(turn, "some", found)
            if wanted is None:
                return None
            if not wanted() or time.monotonic() >= until:
                self.over(turn, wanted)
                return None
            self.wait(min(0.2, max(0.01, until - time.monotonic())))

    def over(self, turn: str, wanted: Callable[[], bool] | None) -> None:
        """Nothing more comes at a turn; where it was waited for, the journal says so."""
        if wanted is None:
            return
        entry = self.store.entry(self.n)
        if entry is None:
            self.store.write(self.n, turn, "over", ())
        elif (entry.turn, entry.what) != (turn, "over"):
            raise ReplayError(entry.turn, turn)
        self.n += 1

    def take(self, turn: str, what: str, letters: Sequence[Come]) -> list[Come]:
        """Write in the journal what is taken, and take it."""
        self.store.write(self.n, turn, what, [one.at for one in letters])
        return self.taken(turn, what)

    def taken(self, turn: str, what: str) -> list[Come]:
        """The letters of the next line of the journal."""
        entry = self.store.entry(self.n)
        if entry is None or (entry.turn, entry.what) != (turn, what):
            raise ReplayError(entry.turn if entry else "its end", turn)
        self.n += 1
        found = self.store.letters(entry.letters)
        for one in found:
            self.lamport = max(self.lamport, min(one.slip["lamport"], LATEST)) + 1
        return found

    def wait(self, seconds: float) -> None:
        """Wait for news; raise if the agent is to stop."""
        with self.news:
            self.news.wait(seconds)
        if self.stop():
            raise Stopped("stopped while it waited for letters; what was saved and the journal are whole")

    def idle(self, seconds: float) -> None:
        """Wait for news, if there are none."""
        with self.news:
            self.news.wait(seconds)

    def idle_until(self, moment: float) -> None:
        """Wait until a moment, or until the agent is to stop."""
        while not self.stop() and (left := moment - time.monotonic()) > 0:
            self.idle(min(left, 0.2))

    def refuse(self, peer: int) -> None:
        """Count something of a neighbour as refused."""
        if peer in self.links:
            self.links[peer].refuse()

    def owed(self) -> set[int]:
        """Neighbours for whom something waits that they need, if they have not been deaf for too long."""
        self.look()
        return {peer for peer in self.store.owed() if self.links[peer].deaf <= self.patience}

    def unheard(self) -> set[int]:
        """Neighbours who may still learn, as they have not said farewell, if they have not been quiet for too long."""
        self.look()
        return {peer for peer in self.senders - self.store.done() if self.links[peer].quiet <= self.patience}

    def look(self) -> None:
        """Count for how long others give no sign. Only seconds in which this agent looks for one count, so that nobody
        takes others for lost who was stopped, or whose clock has jumped."""
        now = time.monotonic()
        seconds, self.looked = min(now - self.looked, LOOK), now
        for link in self.links.values():
            link.quiet, link.deaf = link.quiet + seconds, link.deaf + seconds

    def unreached(self, peer: int) -> bool:
        """Has a neighbour not answered for some tries?"""
        return self.links[peer].silent >= 3


class ReplayError(Exception):
    """The journal does not belong to what is being done again."""

    def __init__(self, there: str, here: str) -> None:
        super().__init__(
            f"the journal goes on at {there}, and the agent is at {here}: data, settings or shoal itself are not those "
            "of the time when it was written"
        )


def about(slip: Slip) -> dict[str, Any]:
    """What of a slip is kept beside its turn and its envelope."""
    return {"number": slip.number, "lamport": slip.lamport, "of": slip.of, "reply": slip.reply, "done": slip.done}


__all__ = ["EACH", "Draft", "Link", "Office", "ReplayError"]
