"""Mail: what agents send each other, what it costs, and the post, which is the only way from one agent to another.

`mail` is a message and its price, `ledger` the book in which every message is written, `filters` what an edge lets
pass, `post` the way from agent to agent: `dispatch` what may leave, `carriage` what becomes of it on its way,
`arrival` when it is there, `judgement` what a receiver accepts. `quote` is what an exchange will cost at most,
`audit` looks whether any edge has carried too much.
"""
