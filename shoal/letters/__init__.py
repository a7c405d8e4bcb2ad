"""Letters: what agents send each other, as data, and the books in which it is written.

`mail` is a message and its price, `table` many of them as columns, over `links`, `posted` with verdicts; `letter`
declares what those of a mode look like, and `quote` what one will cost; `terms` says what the policies of a link let
out; what is under way lies in an `inbox`, and every message is a row of the `ledger`. How letters get from agent to
agent is `shoal.mail`.
"""
