"""Sharing: a mode is three verbs of one agent, `ask`, `answer` and `absorb`, and `letters` that say what its mail looks
like.

`mode` says what a mode is, `present` what an agent may do at an exchange, `agent` what may be read of it; `modes` has
the table MODES, `batched` the companions for all agents at once, `plan` tells what sharing will cost. A new mode is a
file with a settings class that has these verbs, and a line in MODES; the contract tests find it there.
"""
