"""shoal: fleets of agents that learn their own streams of tasks, and share what helps the others."""

__version__ = "0.1.0"
