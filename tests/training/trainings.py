"""Several ``ntrm train``, one after the other in one process: for tests of processes that train together.

Importing takes such a process far longer than training. Each argument is a command, as a JSON list of words.
"""

import json
import sys

from ntrm.cli.main import app

if __name__ == "__main__":
    for command in sys.argv[1:]:
        app(json.loads(command), standalone_mode=False)
