"""Learners: how an agent learns a task without forgetting the others.

`contract` says what a learner is, `table` has LEARNERS: `replay`, `modular` (whose epochs are in `growth`, its modules
on trial in `candidates`), `ewc`, `lwf`, `agem`. What they are made of: `batches` of images, the `usual` epochs, `step`
(the loss of one agent with whatever is added to it, its gradient, a masked Adam), and two owners of state, the replay
`memory` and the `received` images. `fisher` says how much each weight matters. What may enter: a world and a stack.
"""
