"""The live fleet: agents on hosts of their own that exchange letters directly, without a server in the middle.

`life` of one agent, driven by the loop of the simulator through the `crew` of one, whose mail goes over a network;
`wire`, a letter as bytes, and what is checked of it; `office` and `store`, its outbox, inbox and journal; `transport`,
the seam to the network, with lines for tests, and `over_zenoh`; `authority` (certificates), `fleets` (folders);
`serving`, what others on its host may ask; `replaying`, learning again by the journal.
"""
