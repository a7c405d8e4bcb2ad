"""Mail: what agents send each other, what it costs, and the post, which is the only way from one agent to another.

`mail` is a message and its price, `ledger` the book in which every message is written, `filters` what an edge lets
pass, `post` what leaves and what waits for its receiver, `carriage` what becomes of it on the way, `judgement` what a
receiver accepts, `quote` what an exchange will cost at most.
"""
