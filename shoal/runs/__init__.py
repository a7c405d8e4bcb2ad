"""Runs on disk: directories that survive anything (`record`), carrying out a run (`execute`), common starts that are
kept (`common_starts`), a run's tables (`tables`), and runs that belong together (`cells`)."""
