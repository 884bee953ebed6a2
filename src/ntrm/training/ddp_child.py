"""One of the other processes of a training with ``--num-devices``; ``ddp`` starts it as a module."""

from __future__ import annotations

import json
import sys
import traceback

from ntrm.core.errors import NtrmError
from ntrm.core.processes import end_with_parent
from ntrm.training.recipe import Recipe
from ntrm.training.train import train


def main() -> int:
    """One of the other processes: what to train comes as a line of JSON."""
    request = json.loads(sys.stdin.buffer.readline())
    end_with_parent()
    try:
        train(**{**request, "recipe": Recipe(**request["recipe"])})
    except NtrmError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except Exception:  # noqa: BLE001 - the first process tells what ended this one, whatever it was
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
