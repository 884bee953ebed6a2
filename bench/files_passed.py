"""How many of our files a task passes through: one small image, a training of three steps, one click to its files.

python bench/files_passed.py    # counts functions that are called in this process, all its threads included
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType

import ntrm
from ntrm.cli.main import app

PACKAGE = str(Path(ntrm.__file__).parent)
SECTIONS = "phantom data --sections 3 --seed 1"
SMALL = "--option width=0.125 --option dim=32 --set steps=3 --set validate_every=3 --set batch=2 --set window=64"
TASKS = {
    "one small image": "segment data/10x/Images/BCC_1.tif --out out --device cpu",
    "a training of three steps": f"train --data data --out run --device cpu {SMALL} --set overlap=0 --set workers=0",
    "a click to its files": "correct out --click BCC_1 300 200 SCC --device cpu",
}


def files_of(command: str) -> set[str]:
    """Files of the package with a function that the command calls."""
    seen = set[str]()

    def note(frame: FrameType, event: str, _: object) -> None:
        # The body of a class or a module, which an import runs, is no function.
        if event == "call" and frame.f_code.co_flags & CO_OPTIMIZED and frame.f_code.co_filename.startswith(PACKAGE):
            seen.add(frame.f_code.co_filename)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        app(command.split(), standalone_mode=False)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return seen


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "ntrm", *SECTIONS.split()], cwd=folder, check=True)
        os.chdir(folder)
        for name, command in TASKS.items():
            print(f"{name}: {len(files_of(command))} files")
        os.chdir("/")


if __name__ == "__main__":
    main()
