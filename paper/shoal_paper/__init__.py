"""The paper: what its rows really did (`protocol`), its tables and figures, a file each, and what is made of them.

`families` lists the tables and figures; each is a family of cells, a run each. What may enter: everything of shoal, and
nothing of shoal depends on it but the protocol `paper` and the commands that reproduce.
"""
