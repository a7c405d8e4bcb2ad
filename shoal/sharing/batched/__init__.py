"""Companions: verbs of modes for all agents at once, on arrays. What they do is what the definitions say; a law holds
them to it, and `machine.companions = false` leaves them out."""
