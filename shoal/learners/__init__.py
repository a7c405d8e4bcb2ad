"""Learners: how an agent learns a task without forgetting the others."""
