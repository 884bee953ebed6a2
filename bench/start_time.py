"""How long a command takes until its network first sees a window, beside the libraries that it cannot do without.

    python bench/start_time.py [--repeats 5]

Each measurement is a new process, with our modules compiled beforehand, as an installation has them. Processor seconds
are those of the command's own process, all threads together; the child that reads a slide starts beside it. The floor
of `ntrm segment` is `import torch`; that of `ntrm train` is torch's first optimiser, for which it imports its compiler;
that of `ntrm --help` is Typer with its help pages.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

SRC = Path(__file__).parents[1] / "src"
CLOCKS = """
import json, sys, time
def now():
    return time.process_time(), time.perf_counter()
begun = now()
def tell():
    print(json.dumps([end - begin for begin, end in zip(begun, now())]), file=sys.stderr)
    sys.stderr.flush()
"""
COMMAND = """
import torch
called = torch.nn.Module.__call__
def first(network, *given, **more):
    torch.nn.Module.__call__ = called
    tell()
    return called(network, *given, **more)
torch.nn.Module.__call__ = first
sys.argv[0] = "ntrm"
from ntrm.cli.main import main
main()
"""
HELP = """
import atexit
atexit.register(tell)
sys.argv[0] = "ntrm"
from ntrm.cli.main import main
main()
"""
FLOORS = {
    "import torch": "import torch\ntell()",
    "import torch, first optimiser": "import torch\ntorch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])\ntell()",
    "import typer with its help pages": "import typer, typer.rich_utils\ntell()",
}


def measure(script: str, *words: str) -> tuple[float, float]:
    """Processor seconds and seconds of the clock that a new process tells."""
    done = subprocess.run([sys.executable, "-c", CLOCKS + script, *words], capture_output=True, text=True, check=False)
    told = [line for line in done.stderr.splitlines() if line.startswith("[") and line.endswith("]")]
    if not told:
        raise SystemExit(f"{words} did not come so far:\n{done.stderr}")
    processor, clock = json.loads(told[0])
    return processor, clock


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        skin = folder / "skin"
        shutil.copytree(SRC, folder / "src")
        compileall.compile_dir(folder / "src", quiet=2)
        os.environ["PYTHONPATH"] = str(folder / "src")
        words = [sys.executable, "-m", "ntrm", "phantom", str(skin), "--sections", "4", "--seed", "1"]
        subprocess.run(words, check=True, capture_output=True)
        section = next((skin / "10x" / "Images").iterdir())
        few = [word for setting in ("steps=1", "batch=2", "workers=0") for word in ("--set", setting)]
        cases = [
            *((name, script, []) for name, script in FLOORS.items()),
            ("`ntrm --help`", HELP, ["--help"]),
            ("`ntrm segment`", COMMAND, ["segment", str(section), "--mpp", "6.7", "--out"]),
            ("`ntrm train`", COMMAND, ["train", "--data", str(skin), *few, "--out"]),
        ]
        found: dict[str, list[tuple[float, float]]] = {name: [] for name, _, _ in cases}
        # In turns: a machine that others use is slow for all of them alike.
        for n in range(asked.repeats):
            for name, script, words in cases:
                out = [str(folder / f"{words[0]}-{n}")] if words[-1:] == ["--out"] else []
                found[name].append(measure(script, *words, *out))
        print("| | processor s | clock s | processor s above `import torch` |\n|---|---|---|---|")
        floor = [processor for processor, _ in found["import torch"]]
        for name, times in found.items():
            processor, clock = (statistics.median(each) for each in zip(*times, strict=True))
            above = statistics.median(own - least for (own, _), least in zip(times, floor, strict=True))
            print(f"| {name} | {processor:.2f} | {clock:.2f} | {max(above, 0):.2f} |")


if __name__ == "__main__":
    main()
