"""Contracts: the laws that every entry of a table keeps, as functions. `shoal.testing` is their public door.

`fleets` are the small fleets that they run and how two ends are compared; `modes`, `learners`, `models`, `graphs`,
`scores`, `scenarios`, `metrics` and `datasets` have the laws of one table each. Nothing here knows an entry by name.
"""
