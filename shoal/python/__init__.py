"""shoal in a Python program or a notebook: `Fleet`, its `Result`, and networks as values; the same underneath as the
command line."""
