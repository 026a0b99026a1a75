"""`hcfs` and `python -m hcfs`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line of sys.argv and exit with its code."""
    # click is imported only when there is a command line to read.
    from hcfs.cli.commands import only_reports
    from hcfs.cli.run import run
    from hcfs.cli.streams import Streams

    sys.exit(run(sys.argv[1:], Streams.take_over(only_reports)))


if __name__ == "__main__":
    main()
