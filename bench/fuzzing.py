"""What the fuzzers share: their options, the count of what became of the files, the document they print."""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections import Counter
from typing import Any

FAILED = "FAILED"


def options(description: str | None, memory_mb: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--memory-mb", type=int, default=memory_mb)
    return parser


class Tally:
    """Outcomes in all, by ``thing`` (what a file is) and by damage."""

    def __init__(self, thing: str) -> None:
        self.thing, self.started = thing, time.monotonic()
        self.total, self.by_thing, self.by_damage = Counter[str](), Counter[str](), Counter[str]()
        self.failures: list[dict[str, Any]] = []

    def add(self, name: str, damage: str, found: str, failure: dict[str, Any]) -> bool:
        """Count one; ``failure`` is kept where it failed. Whether it did."""
        self.total[found] += 1
        self.by_thing[f"{name}: {found}"] += 1
        self.by_damage[f"{damage}: {found}"] += 1
        failed = found.startswith(FAILED)
        if failed:
            self.failures.append(failure)
        return failed

    def document(self, memory_mb: int, seconds: float, **further: Any) -> dict[str, Any]:
        """All counts, with the limits that one file had."""
        return {
            "files": sum(self.total.values()),
            "seconds": round(time.monotonic() - self.started, 1),
            **further,
            "peak_mb_of_a_child": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024,
            "limits": {"memory_mb": memory_mb, "seconds": seconds},
            "outcomes": dict(self.total.most_common()),
            f"by_{self.thing}": dict(sorted(self.by_thing.items())),
            "by_damage": dict(sorted(self.by_damage.items())),
            "failures": self.failures,
        }


def finish(result: dict[str, Any]) -> None:
    """Print, and end with 1 where anything failed."""
    print(json.dumps(result, indent=2))
    sys.exit(1 if result["failures"] else 0)
