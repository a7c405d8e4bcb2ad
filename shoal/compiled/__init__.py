"""Training steps of MLPs as a small program in C, compiled where it runs.

`steps.c` does the work, `build` compiles and loads it, `steps` tells it what to do. Where there is no compiler, or a
net it does not know, `shoal/learners/step.py` does the same in torch; both agree up to rounding.
"""
