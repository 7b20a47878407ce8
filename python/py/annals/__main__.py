"""The command `annals`: `python -m annals threads --store chat.db`."""

from __future__ import annotations

import signal
import sys

from annals._annals import run_command


def main() -> int:
    """Runs the command with the arguments of the process, and returns its exit code."""
    # The command ends by itself at Ctrl-C, as the program of the same name does.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return run_command(["annals", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
