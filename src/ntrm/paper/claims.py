"""Every claim of the paper, tested: held, not held, or not established with this data."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ntrm.core.wording import signed
from ntrm.evaluation.interfaces import CLAIMED
from ntrm.metrics.significance import Comparison
from ntrm.paper.outcomes import STATISTICS, PlanResults, compare_stacks, compare_variants, false_positive_rate
from ntrm.paper.plan import Variant
from ntrm.paper.published import PRIMARY, dice_gains
from ntrm.paper.result_tables import Difference, ResultTable, seconds_per_section

HELD, NOT_HELD, NOT_ESTABLISHED, LEFT_OUT = "held", "not held", "not established", "left out"

Comparisons = Collection[Comparison]


class Claim(NamedTuple):
    """One claim, whether it stands, and what was measured for it: a row of the table."""

    claim: str
    verdict: str
    difference: Difference | None
    measured: str


def claims_table(results: PlanResults) -> ResultTable | None:
    """Every claim of the paper that can be counted; None where NTRM was not trained."""
    ours = results.plan.ours
    if ours is None:
        return None
    note = (
        "“Held” and “not held” need a 95 % interval (paired bootstrap over the patients of the test part, 10,000 "
        "draws) that does not contain 0, after Holm's correction over the comparisons of a claim; anything else is "
        "“not established”, which five patients or fewer always are. The paper tests none of its claims. A control "
        "without the relation module corrects errors of its coarse head, too: only the comparison with it speaks "
        "for the module. False positives are the share of the pixels of other tissue that are called SCC. "
        "Differences are in points, of 0.01 each."
    )
    rows = [claim._asdict() for claim in find_claims(results, ours)]
    return ResultTable("claims", "What the paper claims, tested", rows, note)


def find_claims(results: PlanResults, ours: Variant) -> Iterator[Claim]:
    """The claims in the order of the paper."""
    others = [variant for variant in results.plan.systems if variant != ours]
    if others:
        yield from _scores(results, ours, others)
    yield from _false_positives(results, ours, others)
    for one, other in CLAIMED:
        yield from _interface(results, ours, one, other)
    yield from _order(results, ours, others)
    yield from _resolutions(results)


def verdict_of(comparisons: Comparisons, *, lower: bool = False) -> str:
    """Held if every difference is established in the claimed direction; not held if one is in the other."""
    signs = [(-1 if lower else 1) * comparison.difference for comparison in comparisons if comparison.established]
    if any(sign < 0 for sign in signs):
        return NOT_HELD
    return HELD if comparisons and len(signs) == len(comparisons) else NOT_ESTABLISHED


def _judged(claim: str, measured: str, comparisons: Comparisons, needed: int = 1, *, lower: bool = False) -> Claim:
    """A claim that something is higher (or lower); the comparison shown is the least favourable of those ``needed``."""
    if not needed or len(comparisons) < needed:
        return Claim(claim, LEFT_OUT, None, "a run failed, or there is nothing to count")
    sign = -1 if lower else 1
    shown = min(comparisons, key=lambda comparison: sign * comparison.difference)
    return Claim(claim, verdict_of(comparisons, lower=lower), Difference.of(shown), measured)


def _scores(results: PlanResults, ours: Variant, others: list[Variant]) -> Iterator[Claim]:
    """The highest IoU and Dice of all systems."""
    least, *_, most = dice_gains()
    above = f"the highest Dice: {least:.1f} to {most:.2f} points above"
    for measure, title in (("iou", "the highest mean IoU"), ("dice", above)):
        compared = compare_variants(results, [(ours, other) for other in others], STATISTICS[measure])
        words, comparisons = "", compared.values()
        if compared:
            _, closest = min(compared, key=lambda pair: compared[pair].difference)
            gains = sorted(100 * comparison.difference for comparison in comparisons)
            spread = f"{signed(gains[0], 2)} to {signed(gains[-1], 2)} points"
            theirs = [fmean(comparison.second_by_seed) for comparison in comparisons]
            if min(theirs) >= 0.01:  # nobody tells gains over less in percent
                relative = sorted(100 * one.difference / score for one, score in zip(comparisons, theirs, strict=True))
                spread += f" ({signed(relative[0], 0)} % to {signed(relative[-1], 0)} %)"
            ahead = sum(comparison.established and comparison.difference > 0 for comparison in comparisons)
            words = f"NTRM minus the others: {spread}; established over {ahead} of {len(others)}"
            words += f"; shown: minus {closest.title}"
        yield _judged(title, words, comparisons, len(others))


def _false_positives(results: PlanResults, ours: Variant, others: list[Variant]) -> Iterator[Claim]:
    """Pixels called SCC that are not: final against coarse, against the control, against the other systems."""
    title, control = "fewer false positives of SCC", results.plan.control
    if "SCC" not in results.classes:
        yield Claim(title, LEFT_OUT, None, "the classes of this dataset hold no SCC")
        return
    rate = false_positive_rate(results.classes.index("SCC"))
    final, coarse = results.stack(ours), results.stack(ours, "coarse")
    within: Comparisons = ()
    if final is not None and coarse is not None and final.shape == coarse.shape:
        within = compare_stacks({"": (final, coarse)}, results.patients_of([ours]), rate).values()
    counts = _counts(results, ours)
    yield _judged(f"{title} after the relation module", f"final minus coarse; {counts}", within, lower=True)
    if control is not None:
        words = f"NTRM minus control; {counts}; control {_counts(results, control)}"
        against = compare_variants(results, [(ours, control)], rate).values()
        yield _judged(f"{title} than the matched control", words, against, lower=True)
    if others:
        against = compare_variants(results, [(ours, other) for other in others], rate).values()
        fewer = sum(comparison.difference < 0 for comparison in against)
        words = f"NTRM has fewer than {fewer} of {len(others)}; shown: minus the one with the fewest"
        yield _judged(f"{title} than the other systems", words, against, len(others), lower=True)


def _counts(results: PlanResults, variant: Variant) -> str:
    """False positives of SCC, coarse → final, with the recall that they must be read with."""
    numbers = [results.metric(variant, "claims", "scc_false_positives", head).mean for head in ("coarse", "final")]
    coarse, final = ("–" if number is None else f"{number:,.0f}" for number in numbers)
    recall = results.metric(variant, "pooled", "classes", "SCC", "recall").mean
    known = ", no SCC in the test part" if recall is None else f", SCC found {recall:.1%}"
    return f"{coarse} → {final} pixels{known}"


def _interface(results: PlanResults, ours: Variant, one: str, other: str) -> Iterator[Claim]:
    """Right pixels at the interface of two tissues: final against coarse prediction, and against the control."""
    title, control = f"errors corrected at the {one}–{other} interface", results.plan.control
    if not {one, other} <= {*results.classes}:
        yield Claim(title, LEFT_OUT, None, "the classes of this dataset do not hold both")
        return
    counts, theirs = (results.interface(variant, one, other) for variant in (ours, control))
    if counts is None or not counts["pixels"].any():
        yield Claim(title, LEFT_OUT, None, "the interface does not occur in the test part, or a run failed")
        return
    before = _right_wrong(counts["pixels"], counts["wrong"] + counts["corrected"] - counts["broken"])
    corrected, broken, pixels = (_mean_sum(counts[name]) for name in ("corrected", "broken", "pixels"))
    words = f"{corrected} corrected, {broken} broken of {pixels} pixels within 3 pixels of it"
    rivals, networks = [(title, before, words)], [ours]
    if control is not None and theirs is not None:
        networks.append(control)
        words = f"which corrects {_mean_sum(theirs['corrected'])} and breaks {_mean_sum(theirs['broken'])}"
        words = f"pixels right there, NTRM minus control ({words})"
        because = f"{title}, because of the relation module"
        rivals.append((because, _right_wrong(theirs["pixels"], theirs["wrong"]), words))
    right, patients = _right_wrong(counts["pixels"], counts["wrong"]), results.patients_of(networks)
    for claim, rival, measured in rivals:
        yield _judged(claim, measured, compare_stacks({"": (right, rival)}, patients, STATISTICS["accuracy"]).values())


def _right_wrong(pixels: NDArray[Any], wrong: NDArray[Any]) -> NDArray[Any]:
    """(seeds, S, 2, 2) as if there were one class: right, wrong. Its accuracy is the fraction that is right."""
    right = np.stack([pixels - wrong, wrong], axis=-1)
    return np.stack([right, np.zeros_like(right)], axis=-2)


def _mean_sum(counts: NDArray[Any]) -> str:
    return f"{counts.sum(axis=1).mean():,.0f}"


def _order(results: PlanResults, ours: Variant, others: list[Variant]) -> Iterator[Claim]:
    """Spatial order of tissues kept: agreement of the predicted tissue graph with the true one."""
    control = [results.plan.control] if results.plan.control else []
    for name, rivals in (("the matched control", control), ("the other systems", others)):
        comparisons = compare_variants(results, [(ours, other) for other in rivals], "adjacency_f1").values()
        words = "F1 of the edges of the section's tissue graph, mean over sections"
        if comparisons:
            closest = min(comparisons, key=lambda comparison: comparison.difference)
            words += f": {fmean(closest.first_by_seed):.3f} against {fmean(closest.second_by_seed):.3f}"
        if rivals:
            title = f"the spatial order of tissues is kept better than by {name}"
            yield _judged(title, words, comparisons, len(rivals))


def _resolutions(results: PlanResults) -> Iterator[Claim]:
    """10x scores best, and costs little."""
    by_level = {variant.level: variant for variant in results.plan.resolutions}
    if PRIMARY not in by_level or len(by_level) < 2:
        title = "10x scores higher than finer resolutions, at marginal cost"
        yield Claim(title, LEFT_OUT, None, "fewer than two resolutions, or no 10x, were run")
        return
    base = by_level.pop(PRIMARY)
    for level, variant in by_level.items():
        words = f"mean IoU of each section at its own resolution, 10x minus {level}"
        comparisons = compare_variants(results, [(base, variant)], "iou").values()
        yield _judged(f"10x scores higher than {level}", words, comparisons)
        slow, fast = (results.score(one, seconds_per_section).mean for one in (variant, base))
        many, few = (results.metric(one, "pixels").mean for one in (variant, base))
        verdict, words = LEFT_OUT, "a run failed"
        if slow and fast and many and few:
            verdict = HELD if fast <= slow else NOT_HELD
            words = f"{level} has {many / few:.1f} times the pixels of 10x and takes {slow / fast:.1f} times"
            words += " as long per section: 10x is the coarsest, hence cheapest"
        yield Claim(f"10x costs little beside {level}", verdict, None, words)
