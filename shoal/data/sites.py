"""Sites: what agents are called, where the data has a name for the place of each."""

from collections.abc import Sequence


def site_of(sources: Sequence[str], agent: int) -> str:
    """The place whose rows an agent has; empty, where all agents have rows of one."""
    return sources[agent % len(sources)] if len(sources) > 1 else ""


def called(sources: Sequence[str], agents: int, agent: int) -> str:
    """What an agent is called: its site, if nobody else is there, or else by its number."""
    site = site_of(sources, agent)
    if not site:
        return f"agent {agent}"
    shared = agent >= len(sources) or agent + len(sources) < agents
    return f"{site} (agent {agent})" if shared else site


def named(sources: Sequence[str], agent: int) -> str:
    """The same in a message that does not know how many agents there are: with the number, so that nobody errs."""
    site = site_of(sources, agent)
    return f"{site} (agent {agent})" if site else f"agent {agent}"


def names(sources: Sequence[str], agents: int) -> list[str]:
    """What all agents are called; nothing, where they have numbers only."""
    return [called(sources, agents, agent) for agent in range(agents)] if len(sources) > 1 else []
