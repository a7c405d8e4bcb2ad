"""The command line: `commands`, how things look on the terminal, progress bars, trackers, and the demo."""

import sys


def main() -> None:
    """The command `shoal`."""
    try:
        from shoal.cli.commands import main
    except KeyboardInterrupt:  # reading the program takes a second
        sys.stderr.write("stopped before anything began\n")
        raise SystemExit(130) from None

    main()
