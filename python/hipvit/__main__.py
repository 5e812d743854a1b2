"""The command line: ``python -m hipvit``, which is the program ``hipvit`` too."""

from __future__ import annotations

import signal
import sys

from hipvit import _hipvit


def main() -> int:
    """Run the command line with the process's arguments. Returns its exit code."""
    # Python only notes the signal, which nothing would see until the command ends.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _hipvit.command_line(["hipvit", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
