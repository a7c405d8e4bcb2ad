"""Settings: what a run is, read from TOML and words, completed by a protocol, and checked.

`groups` has the groups of settings and `Settings` itself; `reading` makes them from files and words; `completing` makes
them whole; `protocols` fills in what the user did not say; `learners` and `kinds` complete how agents learn, and agents
that differ from the rest; `checks` says in one sentence what cannot be; `identity` names a run, `former` knows how
earlier versions wrote settings. What may enter: plain values, and modes and learners made in Python. By name, modes,
learners and graphs are looked up in their tables.
"""
