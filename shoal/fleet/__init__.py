"""The fleet: all agents of all seeds, and the one loop that trains them.

`lessons` is what a stack of agents does in a task; `members` are stacks behind a handle, here or in `processes` of
their own; `run` is the loop that speaks to them. What may enter: settings, a bank of data, and the stacks of a
checkpoint.
"""
