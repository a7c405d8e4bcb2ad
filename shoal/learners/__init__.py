"""Learners: how an agent learns a task without forgetting the others.

`contract` says what a learner is, `table` has LEARNERS: `replay`, `modular` (whose epochs are in `growth`, its modules
on trial in `candidates`), and a file for each of the others. What they are made of: `batches` of images, the `usual`
epochs with a learner's turn in every step, `step` (the loss of one agent with whatever is added to it, its gradient, a
masked Adam or SGD), a `reservoir` over the stream and `rehearsal` of what is in it, a net made `anew`, and two owners
of state, the replay `memory` and the `received` images. `plain` has the sentences of those that cannot serve, `fisher`
says how much each weight matters. What may enter: a world and a stack.
"""
