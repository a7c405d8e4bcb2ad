"""What a user says, made into settings: the one place where names become objects.

`reading` takes settings files and words of the command line; `completing` makes what was said whole, by the protocol,
the data and the tables of scenarios, graphs, models, learners and modes; `entries` are groups whose scenario, model or
graph has settings of its own; `learners` and `kinds` complete how agents learn, and agents that differ from the rest;
`checks` says in one sentence what cannot be; `sites` knows agents by their names; `identity` names a run.
"""
