"""Learners: how an agent learns a task without forgetting the others.

`contract` says what a learner is, `table` lists them in LEARNERS and says which is usual for a model; a file for each.
"""
