"""The fleet: all agents of all seeds as stacks of tensors, and the one loop that trains them.

`world` is all that never changes, `stack` all that does; `engine` maps the functions of one agent over all; `run` is
the loop; `evaluate` measures. What may enter: settings and a bank of data.
"""
