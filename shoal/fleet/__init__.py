"""The fleet: all agents of all seeds as stacks of tensors, and the one loop that trains them.

`world` is all that never changes, `stack` all that does, its `state` sorted by owner; `engine` maps the functions of
one agent over all; `lessons` is what a stack does in a task; `members` are stacks behind a handle, here or in
`processes` of their own; `run` is the loop that speaks to them; `evaluate` measures. What may enter: settings, a bank
of data, and the stacks of a checkpoint.
"""
