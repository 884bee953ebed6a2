"""The command ``ntrm``, also as ``python -m ntrm``; imports nothing itself, so that Ctrl-C is heard from the start."""

import sys

INTERRUPTED = 130


def main() -> None:
    """Entry point of the console script."""
    try:
        from ntrm.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
