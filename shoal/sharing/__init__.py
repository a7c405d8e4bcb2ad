"""Sharing: a mode is three verbs, `ask`, `answer` and `absorb`.

`contract` says what a mode is, `modes` has the table MODES, `clock` says when modes act, `exchange` lets them, `plan`
tells what it will cost. A new mode is a file with a settings class that has these verbs, and a line in MODES; the
contract tests find it there.
"""
