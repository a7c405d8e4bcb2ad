"""Agents that are kept: taken out of a run directory, used, saved, exported, and taught more.

`agent` is what a user holds; `files` saves and loads it; `plain` makes nets that need no shoal; `taught` teaches one
agent more, `going` lets a whole fleet go on with rows that came later.
"""
