"""What the paper claims, each put to a test: held, not held, or not established with this data."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean

from ntrm.metrics.significance import Comparison
from ntrm.metrics.wording import signed
from ntrm.paper.facts import Facts
from ntrm.paper.outcomes import (
    DONE,
    STATISTICS,
    Results,
    coarse_and_final,
    compare_family,
    compare_section_scores,
    compare_variants,
    dig,
    false_positive_rate,
    interface_pairs,
)
from ntrm.paper.plan import Variant
from ntrm.paper.published import PRIMARY, TITLES, dice_gains
from ntrm.paper.result_tables import Cell, Difference, Table, seconds_per_section

HELD, NOT_HELD, NOT_ESTABLISHED, LEFT_OUT = "held", "not held", "not established", "left out"
INTERFACES = (("BCC", "RET"), ("RET", "HYP"), ("EPI", "KER"))
"""Where the paper says that the relation module corrects errors."""


@dataclass(frozen=True)
class Claim:
    """One claim, what was measured for it, and whether it stands."""

    claim: str
    measured: str
    verdict: str
    difference: Difference | None = None

    @property
    def row(self) -> tuple[Cell, ...]:
        """For the table."""
        return (self.claim, self.verdict, self.difference, self.measured)


def claims_table(results: Results, facts: Mapping[str, Facts]) -> Table | None:
    """Every claim of the paper that can be counted; None where NTRM was not trained."""
    if results.plan.ours is None:
        return None
    rows = tuple(claim.row for claim in find_claims(results, facts))
    note = (
        "“Held” and “not held” need a 95 % interval (paired bootstrap over the patients of the test part, 10,000 "
        "draws) that does not contain 0, after Holm's correction over the comparisons of a claim; anything else is "
        "“not established”, which five patients or fewer always are. The paper tests none of its claims. A control "
        "without the relation module corrects errors of its coarse head, too: only the comparison with it speaks "
        "for the module. False positives are the share of the pixels of other tissue that are called SCC; a point is "
        "0.01 throughout."
    )
    header = ("claim", "verdict", "difference, points", "measured")
    return Table("claims", "What the paper claims, tested", header, rows, note)


def find_claims(results: Results, facts: Mapping[str, Facts]) -> Iterator[Claim]:
    """The claims in the order of the paper."""
    yield from _scores(results)
    names = _classes(results)
    if "SCC" in names:
        yield from _false_positives(results, names.index("SCC"))
    else:
        yield Claim("fewer false positives of SCC", "the classes of this dataset hold no SCC", LEFT_OUT)
    for one, other in INTERFACES:
        if one in names and other in names:
            yield from _interface(results, one, other)
        else:
            missing = "the classes of this dataset do not hold both"
            yield Claim(f"errors corrected at the {one}–{other} interface", missing, LEFT_OUT)
    yield from _order(results)
    yield from _resolutions(results, facts)


def verdict_of(comparisons: Collection[Comparison], *, lower: bool = False) -> str:
    """Held if every difference is established in the claimed direction; not held if one is in the other."""
    signs = [(-1 if lower else 1) * each.difference for each in comparisons if each.established]
    if any(sign < 0 for sign in signs):
        return NOT_HELD
    return HELD if comparisons and len(signs) == len(comparisons) else NOT_ESTABLISHED


def _classes(results: Results) -> list[str]:
    return next((list(o.metrics["classes"]) for o in results.outcomes.values() if o.status == DONE), [])


def _others(results: Results) -> list[Variant]:
    return [variant for variant in results.plan.systems if variant != results.plan.ours]


def _scores(results: Results) -> Iterator[Claim]:
    """The highest IoU and Dice of all systems."""
    ours, others = results.plan.ours, _others(results)
    if ours is None or not others:
        return
    least, *_, most = dice_gains()
    above = f"the highest Dice: {least:.1f} to {most:.2f} points above"
    for measure, title in (("iou", "the highest mean IoU"), ("dice", above)):
        found = compare_variants(results, [(ours, other) for other in others], STATISTICS[measure])
        if len(found) < len(others):
            yield Claim(title, "a run failed", LEFT_OUT)
            continue
        closest = min(found.values(), key=lambda each: each.difference)
        gains = sorted(100 * each.difference for each in found.values())
        ahead = sum(each.established and each.difference > 0 for each in found.values())
        relative = sorted(100 * each.difference / max(fmean(each.second_by_seed), 1e-9) for each in found.values())
        shares = f"{signed(relative[0], 0)} % to {signed(relative[-1], 0)} %"
        spread = f"{signed(gains[0], 2)} to {signed(gains[-1], 2)} points ({shares})"
        rival = TITLES.get(closest.second.split()[0], closest.second)
        words = f"NTRM minus the others: {spread}; established over {ahead} of {len(others)}; shown: minus {rival}"
        yield Claim(title, words, verdict_of(found.values()), Difference.of(closest))


def _false_positives(results: Results, index: int) -> Iterator[Claim]:
    """Pixels called SCC that are not: final against coarse, against the control, against the other systems."""
    ours, control, rate = results.plan.ours, results.plan.control, false_positive_rate(index)
    if ours is None:
        return
    title = "fewer false positives of SCC"
    pair, patients = coarse_and_final(results, ours)
    within = compare_family({"": pair}, patients, rate).values() if pair else ()
    yield _lower(f"{title} after the relation module", within, f"final minus coarse; {_counts(results, ours)}")
    if control is not None:
        found = compare_variants(results, [(ours, control)], rate).values()
        counts = f"NTRM minus control; {_counts(results, ours)}; control {_counts(results, control)}"
        yield _lower(f"{title} than the matched control", found, counts)
    others = _others(results)
    if others:
        found = compare_variants(results, [(ours, other) for other in others], rate).values()
        fewer = sum(each.difference < 0 for each in found)
        words = f"NTRM has fewer than {fewer} of {len(others)}; shown: minus the one with the fewest"
        whole = found if len(found) == len(others) else ()
        yield _lower(f"{title} than the other systems", whole, words)


def _lower(title: str, found: Collection[Comparison], measured: str) -> Claim:
    """A claim that something is lower; the comparison shown is the least favourable one."""
    if not found:
        return Claim(title, "a run failed, or there is nothing to count", LEFT_OUT)
    worst = max(found, key=lambda each: each.difference)
    verdict = verdict_of(found, lower=True)
    return Claim(title, measured, verdict, Difference.of(worst))


def _counts(results: Results, variant: Variant) -> str:
    """False positives of SCC, coarse → final, with the recall that they must be read with."""
    done = results.done(variant)

    def mean(*path: str) -> str:
        values = [dig(outcome.metrics, path) for outcome in done]
        known = [value for value in values if value is not None]
        return f"{fmean(known):.0f}" if known else "–"

    recalls = [dig(outcome.metrics, ("pooled", "classes", "SCC", "recall")) for outcome in done]
    known = [recall for recall in recalls if recall is not None]
    recall = f", SCC found {fmean(known):.1%}" if known else ", no SCC in the test part"
    claim = ("claims", "scc_false_positives")
    return f"{mean(*claim, 'coarse')} → {mean(*claim, 'final')} pixels{recall}"


def _interface(results: Results, one: str, other: str) -> Iterator[Claim]:
    """Pixels beside the interface of two tissues: right at last against right at first, and against the control."""
    ours, control = results.plan.ours, results.plan.control
    if ours is None:
        return
    title = f"errors corrected at the {one}–{other} interface"
    beside = interface_pairs(results, ours, control, one, other)
    if beside is None:
        yield Claim(title, "the interface does not occur in the test part, or a run failed", LEFT_OUT)
        return
    corrected, broken, pixels = beside.changes
    words = f"{corrected:.0f} corrected, {broken:.0f} broken of {pixels:.0f} pixels within 3 pixels of it"
    yield _higher(title, compare_family({"": beside.within}, beside.patients, STATISTICS["accuracy"]), words)
    if beside.across is None:
        return
    corrected, broken, _ = beside.control_changes
    words = f"pixels right there, NTRM minus control (which corrects {corrected:.0f} and breaks {broken:.0f})"
    found = compare_family({"": beside.across}, beside.patients, STATISTICS["accuracy"])
    yield _higher(f"{title}, because of the relation module", found, words)


def _higher(title: str, found: Mapping[str, Comparison], measured: str) -> Claim:
    if not found:
        return Claim(title, "there is nothing to compare", LEFT_OUT)
    (comparison,) = found.values()
    return Claim(title, measured, verdict_of([comparison]), Difference.of(comparison))


def _order(results: Results) -> Iterator[Claim]:
    """Spatial order of tissues kept: agreement of the predicted tissue graph with the true one."""
    ours, control = results.plan.ours, results.plan.control
    if ours is None:
        return
    groups: list[tuple[str, list[Variant]]] = [("the matched control", [control] if control else [])]
    groups.append(("the other systems", _others(results)))
    for name, others in groups:
        if not others:
            continue
        title = f"the spatial order of tissues is kept better than by {name}"
        found = compare_section_scores(results, [(ours, other) for other in others], "adjacency_f1")
        if len(found) < len(others):
            yield Claim(title, "a run failed, or there are no edges", LEFT_OUT)
            continue
        closest = min(found.values(), key=lambda each: each.difference)
        words = (
            f"F1 of the edges of the section's tissue graph, mean over sections: {fmean(closest.first_by_seed):.3f} "
        )
        words += f"against {fmean(closest.second_by_seed):.3f}"
        yield Claim(title, words, verdict_of(found.values()), Difference.of(closest))


def _resolutions(results: Results, facts: Mapping[str, Facts]) -> Iterator[Claim]:
    """10x scores best, and costs little."""
    by_level = {variant.level: variant for variant in results.plan.resolutions}
    title = "10x scores higher than finer resolutions, at marginal cost"
    if PRIMARY not in by_level or len(by_level) < 2:
        yield Claim(title, "fewer than two resolutions, or no 10x, were run", LEFT_OUT)
        return
    base = by_level.pop(PRIMARY)
    for level, variant in by_level.items():
        found = compare_section_scores(results, [(base, variant)], "iou")
        if not found:
            yield Claim(f"10x scores higher than {level}", "a run failed", LEFT_OUT)
            continue
        (comparison,) = found.values()
        words = "mean IoU of each section at its own resolution, 10x minus " + level
        yield Claim(f"10x scores higher than {level}", words, verdict_of([comparison]), Difference.of(comparison))
        yield _cost(results, base, variant, facts)


def _cost(results: Results, base: Variant, variant: Variant, facts: Mapping[str, Facts]) -> Claim:
    seconds = [results.score(each, seconds_per_section).mean for each in (variant, base)]
    ratio = facts[variant.level].pixels["test"] / max(facts[base.level].pixels["test"], 1)
    words = f"{variant.level} has {ratio:.1f} times the pixels of 10x"
    if seconds[0] is None or seconds[1] is None or not seconds[1]:
        return Claim(f"10x costs little beside {variant.level}", words, LEFT_OUT)
    words += f" and takes {seconds[0] / seconds[1]:.1f} times as long per section: 10x is the coarsest, hence cheapest"
    return Claim(f"10x costs little beside {variant.level}", words, HELD if seconds[1] <= seconds[0] else NOT_HELD)
