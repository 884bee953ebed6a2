"""How often the cancers of predicted masks are those of the true ones, section by section."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ntrm.core.errors import UsageError
from ntrm.core.labels import CancerFinding


def score_cancers(
    predicted: Sequence[Sequence[CancerFinding]], true: Sequence[Sequence[CancerFinding]]
) -> dict[str, Any]:
    """Compare the cancers of predicted masks with those of true masks, section by section, as a JSON document.

    Counted are each cancer (``found`` in both, ``missed``, ``invented``, ``excluded`` from both) and the sections whose
    set of cancers is exactly right. A fraction of no section is None.
    """
    names = {tuple(finding.name for finding in findings) for findings in (*predicted, *true)}
    if len(predicted) != len(true) or len(names) > 1:
        raise UsageError(
            "findings that cannot be compared",
            got=f"{len(predicted)} predicted and {len(true)} true sections, cancers {sorted(names)}",
            expected="the same sections and one schema",
        )
    pairs = [
        tuple({each.name for each in found if each.present} for found in pair)
        for pair in zip(predicted, true, strict=True)
    ]
    exact = sum(found == expected for found, expected in pairs)
    scores = {}
    for name in next(iter(names), ()):
        calls = [(name in found, name in expected) for found, expected in pairs]
        outcomes = ((True, True), (False, True), (True, False), (False, False))
        found, missed, invented, excluded = map(calls.count, outcomes)
        scores[name] = {
            "name": name,
            "found": found,
            "missed": missed,
            "invented": invented,
            "excluded": excluded,
            "sensitivity": _fraction(found, found + missed),
            "specificity": _fraction(excluded, excluded + invented),
            "accuracy": _fraction(found + excluded, len(calls)),
        }
    accuracy = _fraction(exact, len(pairs))
    return {"sections": len(pairs), "exact_sets": exact, "exact_set_accuracy": accuracy, "cancers": scores}


def _fraction(count: int, total: int) -> float | None:
    return count / total if total else None
