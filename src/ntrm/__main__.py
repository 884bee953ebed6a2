"""``python -m ntrm`` is ``ntrm``."""

from ntrm.cli.app import main

if __name__ == "__main__":
    main()
