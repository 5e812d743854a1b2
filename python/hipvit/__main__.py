"""The command line: ``python -m hipvit``, also installed as the program ``hipvit``."""

from __future__ import annotations

import signal
import sys

from hipvit import _hipvit


def main() -> int:
    """Run the command line with the process's arguments. Returns its exit code."""
    # Python only records the signal, and would handle it only when the command ends.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _hipvit.command_line(["hipvit", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
