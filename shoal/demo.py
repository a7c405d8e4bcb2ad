"""The demo: a small fleet on the digits that come with shoal, seen in the terminal."""
