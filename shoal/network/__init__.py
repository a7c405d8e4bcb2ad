"""Who can send to whom: `graphs` by name, graph `files`, their `edges` with limits, `facts` and `picture`."""
