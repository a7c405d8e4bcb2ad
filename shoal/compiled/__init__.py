"""Training steps of MLPs and of plain CNNs, and what trained ones answer, as a small program in C, which wheels carry
built.

`steps.c` does the work, with the layers of `convolutions.h` on the vectors of `vectors.h`; `build` compiles it for
every set of instructions when shoal is installed or a wheel is made, and `library` loads what suits the machine;
`answers` and `shoal/learners/orders.py` tell it what to do, in the structures of `layout`.
Where it is not built, or does not know a net, `shoal/learners/in_torch.py` and `shoal/agents/evaluate.py` do the same
in torch; both agree up to rounding.
"""
