"""Agents, what they are while they learn.

`world` is all that never changes (`worlds` makes it), `stack` all that does for the agents of a kind, its `state`
sorted by owner; `engine` maps the functions of one agent over all; `events` says who acts when; `evaluate` measures,
`predicting` says what agents make of test rows; `ends` says which agents diverged.
"""
