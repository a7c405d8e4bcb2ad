"""Runs on disk: directories that survive anything (`record`), carrying out a run whatever interrupts it (`execute`),
common starts that are kept (`common_starts`), a run's tables (`tables`) and what they come to (`metrics`, a table); and
what others have written, read with care and without torch (`read`). What may enter: settings, worlds, and what a run
has written before, also in an earlier format."""
