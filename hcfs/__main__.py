"""`hcfs` and `python -m hcfs`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line of sys.argv and exit with its code."""
    from hcfs.cli.run import run  # click is imported only when there is a command line to read

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
