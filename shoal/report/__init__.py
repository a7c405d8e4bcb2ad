"""A report of finished runs: run directories in, one HTML page and figures out. Never needs torch or a live run."""
