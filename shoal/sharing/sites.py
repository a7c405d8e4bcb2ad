"""Sites: which modes their policies forbid, told before anything runs."""

from collections import Counter
from collections.abc import Sequence

from shoal.agents.world import World
from shoal.data.tasks import Lane
from shoal.errors import SettingsError
from shoal.letters.letter import Room
from shoal.letters.mail import NOT_CLIPPED
from shoal.mail.privacy import affordable, needs_account, unclipped
from shoal.settings.policies import CONTENTS
from shoal.sharing.body import LARGEST, fresh
from shoal.sharing.contract import Sharing


def refused(worlds: Sequence[World], mode: Sharing, sender: Lane, receiver: Lane) -> dict[str, str]:
    """The kinds of a mode's mail that may never leave over an edge, and why."""
    home = {lane: one for one in worlds for lane in one.lanes}
    here, ours = home[sender], home[sender].terms(sender, receiver)
    found = {}
    for quote in mode.quote(here, Room(), home[receiver]):
        why = ours.refuses(mode.carries(quote.kind)) if ours is not None else ""
        if not why and unclipped(here, mode, quote.kind, sender):
            why = NOT_CLIPPED
        if why:
            found[quote.kind] = why
    return found


def dead(worlds: Sequence[World], mode: Sharing) -> dict[tuple[Lane, Lane], tuple[str, str]]:
    """The edges over which nothing of a mode can ever come, with a kind of mail and why it may not leave: all that it
    sends, or all by which it is asked."""
    world, found = worlds[0], {}
    for ends in world.edges:
        if not mode.uses(world, *ends):
            continue
        there, back = refused(worlds, mode, *ends), ends[::-1]
        asked = refused(worlds, mode, *back) if mode.both_ways else {}
        kinds = [one.kind for one in mode.quote(world, Room())]
        for mine, asks in ((asked, True), (there, False)):
            wanted = [kind for kind in kinds if (kind in mode.asking) == asks]
            if (not asks or mode.both_ways) and wanted and all(kind in mine for kind in wanted):
                found[ends] = wanted[0], mine[wanted[0]]
                break
    return found


def check(worlds: Sequence[World]) -> None:
    """Raise for a mode of which policies forbid all that it sends, on every link, and where privacy cannot be counted.
    A class that does not exist is found here too."""
    fleet = worlds[0].fleet
    if not fleet.policy:
        return
    needs_account(fleet)
    for world in worlds:
        takes_noise(world)
    for mode in fleet.sharing:
        found, used = dead(worlds, mode), sum(mode.uses(worlds[0], *ends) for ends in worlds[0].edges)
        if not used or len(found) < used:
            continue
        (kind, why), _ = Counter(found.values()).most_common(1)[0]
        carried = mode.carries(kind)
        holds = "whose contents it does not declare" if carried is None else f"which has {' and '.join(carried.what)}"
        advice = "change `policy`, or share by another mode"
        raise SettingsError(
            f"`policy` forbids mode `{mode.mode}` on every link: its mail of kind `{kind}`, {holds}, never leaves "
            f"({why}); {advice}"
        )


def takes_noise(world: World) -> None:
    """Raise where noise is so much larger than weights that receivers would refuse every model: privacy would be spent
    for nothing."""
    modes = [mode for mode in world.settings.sharing if "models" in contents(world, mode)]
    if not modes or not all(mode.bounds_weights for mode in modes):
        return
    most = LARGEST * fresh(world.model)
    for policy in dict.fromkeys(world.fleet.privacy.values()):
        assert policy.clip is not None
        if policy.noise * policy.clip > most:
            raise SettingsError(
                f"policy.noise = {policy.noise:g} times policy.clip = {policy.clip:g} is noise of "
                f"{policy.noise * policy.clip:.3g} on every weight, and agents refuse weights that are larger than "
                f"{most:.3g}, {LARGEST:g} times their own: no model would be accepted, and privacy be spent for "
                f"nothing; set policy.clip to {most / policy.noise / 4:.1g} or less"
            )


def said(worlds: Sequence[World]) -> list[str]:
    """What policies come to, in sentences; none, where there are none."""
    world, fleet = worlds[0], worlds[0].fleet
    if not fleet.policy:
        return []
    found = []
    for terms, number in Counter(world.terms(*ends) for ends in world.edges).items():
        if terms is not None:
            words = ", ".join(sorted(set(CONTENTS) - terms.allow)) or "nothing as such"
            some = f", nothing of {len(terms.classes)} classes" * bool(terms.classes)
            most = f", at most {terms.per_class} items of a class" * (terms.per_class is not None)
            found.append(f"policy on {number:,} edge{'s' * (number > 1)}: forbidden are {words}{some}{most}")
    for mode in fleet.sharing:
        banned: Counter[tuple[str, str]] = Counter()
        edges = [ends for ends in world.edges if mode.uses(world, *ends)]
        for ends in edges:
            banned.update(refused(worlds, mode, *ends).items())
        for (kind, why), number in banned.items():
            found.append(
                f"policy: {mode.mode} cannot send mail of kind {kind} over {number:,} of {len(edges):,} edges ({why})"
            )
        beside = contents(world, mode) - {"models", "questions"}
        if fleet.privacy and beside:
            found.append(f"privacy is counted of models alone, and {mode.mode} may send {', '.join(sorted(beside))}")
    return found + accounts(world)


def contents(world: World, mode: Sharing) -> set[str]:
    """All that mail of a mode can hold."""
    kinds = (mode.carries(one.kind) for one in mode.quote(world, Room()))
    return {what for one in kinds for what in (CONTENTS if one is None else one.what)}


def accounts(world: World) -> list[str]:
    """What noise comes to, for each policy that has it."""
    from shoal.sharing.plan import moments

    fleet, found = world.fleet, []
    for policy in dict.fromkeys(fleet.privacy.values()):
        who = sum(one == policy for one in fleet.privacy.values())
        head = f"{who} agents send models of which each change is clipped to {policy.clip:g}"
        if not policy.noise:
            found.append(f"{head}, without noise: that keeps nothing private")
            continue
        most = affordable(policy)
        times = sum("models" in contents(world, mode) for _, _, mode in moments(fleet))
        budget = "without a limit" if policy.epsilon is None else f"{most:,} times at epsilon = {policy.epsilon:g}"
        found.append(f"{head} with noise of {policy.noise:g} times that, {budget}; about {times:,} exchanges are due")
    return found
