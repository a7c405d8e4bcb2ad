"""The command line: `commands`, how things look on the terminal, progress bars, trackers, and the demo."""


def main() -> None:
    """The command `shoal`."""
    from shoal.cli.commands import main

    main()
