"""`python -m shoal` is the command `shoal`."""

import os
import sys
from pathlib import Path

# Python puts this folder first; nobody has said that what lies in it may be imported.
if (
    sys.path
    and sys.path[0] in ("", str(Path.cwd()))
    and sys.path[0] not in os.environ.get("PYTHONPATH", "").split(os.pathsep)
):
    del sys.path[0]

from shoal.cli import main

main()
