"""``python -m ntrm`` is ``ntrm``."""

from ntrm.cli.main import main

if __name__ == "__main__":
    main()
