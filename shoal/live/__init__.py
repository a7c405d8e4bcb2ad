"""The live fleet: agents on hosts of their own that exchange letters directly, without a server in the middle."""
