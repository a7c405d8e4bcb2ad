"""Training steps of MLPs, and what trained ones answer, as a small program in C, compiled where it runs.

`steps.c` does the work, `build` compiles and loads it, `steps` and `answers` tell it what to do. Where there is no
compiler, or a net it does not know, `shoal/learners/step.py` and `shoal/fleet/evaluate.py` do the same in torch; both
agree up to rounding.
"""
