"""`python -m adaptpipe` and the `adaptpipe` script."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        from adaptpipe.commands.app import app

        app(prog_name="adaptpipe")
    except KeyboardInterrupt:  # while the imports run; commands handle it themselves
        sys.exit(130)


if __name__ == "__main__":
    main()
