"""Corrections under attack: nonsense in every field, shapes that would take long, versions that nobody has seen."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

from bench.attack_target import Finding, Target, wait_for
from bench.hostile import sound_slide

DONE_SECONDS = 120.0
TRIES = 300
FAR = 1e9


def corrections(target: Target, finding: Finding) -> None:
    """Bodies that are wrong in some field; nothing may be written, and nobody else may wait."""
    key = target.upload(sound_slide(target.seed + 7)).json["id"]
    url = f"/v1/slides/{key}"
    if not wait_for(lambda: target.json(url).get("status") == "done", DONE_SECONDS):
        finding.faults.append("the slide to correct was not segmented in time")
        return
    seen: Counter[str] = Counter()
    for number in range(TRIES):
        action, body = nonsense(random.Random(f"{target.seed} {number}"))
        finding.tries += 1
        status = target.ask("POST", f"{url}/corrections{action}", body).status
        seen[str(status)] += 1
        # A preview may be right by chance; whatever writes has a version that is not there.
        finding.check(400 <= status < 500 or (status, action) == (200, "/preview"), f"{status} to {body[:60]!r}")
    finding.check(target.json(f"{url}/corrections").get("steps") == [], "something was written")
    finding.check(not (target.service.out / "corrections.jsonl").exists(), "a log appeared outside of its slide")
    finding.check(target.is_well(), "/healthz did not answer")
    finding.seen = ", ".join(f"{status}: {count}" for status, count in sorted(seen.items()))
    target.delete(key)


def nonsense(chance: random.Random) -> tuple[str, bytes]:
    """The end of an address, and a body for it."""
    action, step = chance.choice(["", "/preview", "/graph/.."]), chance.choice(["name", "draw", "undo", "redo"])
    body: dict[str, Any] = {"version": 0 if action == "/preview" else 10**6, "tissue": "BCC", "points": [[30, 30]]}
    if action != "/preview":
        body = {"version": 10**6} if step in ("undo", "redo") else body
        body |= {"action": step} | ({"kind": chance.choice(["brush", "area", "divide"])} if step == "draw" else {})
    else:
        # Without a region graph, this much can be looked at: some of it is right.
        body |= {"whole_regions": True, "spread": False, chance.choice(["points", "lasso"]): SHAPES[0](chance)}
    for _ in range(chance.randint(action != "/preview", 2)):
        body[chance.choice(FIELDS)] = chance.choice(VALUES)(chance)
    text = json.dumps(body).encode()
    return action, chance.choice([text, text, text, text[: len(text) // 2], b"[" * 5000, text * 2])


FIELDS = ("points", "lasso", "tissue", "whole_regions", "spread", "reach", "left_out", "by", "kind", "width_um", "side")
SHAPES = (
    lambda chance: [[chance.uniform(-50, 150), chance.uniform(-50, 150)] for _ in range(9)],
    lambda chance: [[chance.uniform(-FAR, FAR), chance.uniform(-FAR, FAR)] for _ in range(9)],
    lambda chance: [[chance.uniform(0, 120), chance.choice([0, 90])] for _ in range(9999)],
    lambda chance: [[chance.uniform(0, 120), 1] for _ in range(20_000)],
)
VALUES = (
    *SHAPES,
    lambda _: None,
    lambda _: float("nan"),
    lambda _: -FAR,
    lambda _: [],
    lambda _: {"a": {"b": []}},
    lambda _: "../../../etc/passwd",
    lambda _: "\x00\u202e" * 40,
    lambda _: True,
)
"""What a field may hold, some of it by chance."""
