"""Agents: what they are while they learn, and what a user holds of one.

`world` is all that never changes, `stack` all that does for the agents of a kind, its `state` sorted by owner; `engine`
maps the functions of one agent over all; `events` says who acts when; `evaluate` measures. `taken` has the `Agent` that
is taken out of a run directory; `rows` reads what a user gives as the agent learned to read it; `files` saves and
loads; `plain` makes nets that need no shoal; `going` lets a fleet go on with rows that came later.
"""
