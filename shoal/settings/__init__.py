"""Settings: what a run is, read from TOML and words, completed by a protocol, and checked.

`groups` has the groups of settings and `Settings` itself; `reading` makes them from files and words; `protocols` fills
in what the user did not say; `kinds` completes agents that differ from the rest; `checks` says in one sentence what
cannot be. What may enter: plain values. Modes, learners, models and graphs are looked up in their tables by name.
"""
