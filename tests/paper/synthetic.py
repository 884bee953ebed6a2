"""Evaluations as the runs leave them, made from counts that a test chooses."""

import csv
import json
from pathlib import Path

import numpy as np

from ntrm.core.labels import SKIN
from ntrm.metrics.overlap import pooled
from ntrm.paper.outcomes import PlanResults
from ntrm.paper.plan import Request, make_plan
from ntrm.paper.published import SYSTEMS
from ntrm.training.log import write_log

WITH_COARSE = ("ntrm-paper", "ntrm-control")


def tiny_plan(archs=SYSTEMS, seeds=(0, 1), levels=("10x",), *, imagenet=(), ablation=True, options=None):
    changes = {"steps": 2, "batch": 2, "window": 64, "overlap": 0}
    wanted = {"seeds": seeds, "overrides": changes, "options": options, "ablation": ablation}
    request, data = Request(Path("data"), Path("out"), archs, **wanted), {level: f"data {level}" for level in levels}
    return make_plan(request, data, lambda arch, options: "imagenet" if arch in imagenet else "scratch")


def confusions(random, sections, accuracy, classes=12, pixels=2_000):
    """(S, K, K) counts of networks that are right with a given probability; equal truth for all of them."""
    truth = np.random.default_rng(0).multinomial(pixels, np.full(classes, 1 / classes), size=sections)
    shares = np.full((classes, classes), (1 - accuracy) / (classes - 1))
    np.fill_diagonal(shares, accuracy)
    return random.multinomial(truth, shares)


def write_job(
    folder,
    job,
    final,
    *,
    coarse=None,
    interfaces=None,
    schema=SKIN,
    scores=None,
    seconds=2.0,
    pixels=1_000_000,
    names=None,
    curve=None,
):
    """The folder of a finished run with these counts."""
    sections = len(final)
    names = names or [f"S{k}" for k in range(sections)]
    patients = [f"P{k}" for k in range(sections)]
    out = folder / "evaluation"
    out.mkdir(parents=True)
    arrays = {"names": np.array(names), "patients": np.array(patients), "final": final}
    if coarse is not None:
        arrays["coarse"] = coarse
    np.savez_compressed(out / "confusions.npz", **arrays)
    np.savez_compressed(out / "interfaces.npz", **(interfaces or {}))
    scores = {"adjacency_f1": [0.5] * sections, "iou": [0.5] * sections, **(scores or {})}
    with (out / "sections.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["name", "patient", *scores])
        writer.writerows([name, patients[k], *(each[k] for each in scores.values())] for k, name in enumerate(names))
    document = {
        "classes": list(schema.names),
        "pooled": pooled(list(final), schema).as_dict(),
        "seconds_predicting": seconds,
        "pixels": pixels,
        "data": {"mpp": 6.7},
        "claims": claims_of(final, coarse, schema),
    }
    curve = curve or [(1, 0.5), (2, 0.6 + 0.01 * job.seed)]
    best = max(score for _, score in curve)
    provenance = {"seconds": 10.0 + job.seed, "steps": 2, "windows": 40, "best": {"iou": best}}
    (folder / "provenance.json").write_text(json.dumps(provenance))
    write_log(folder / "log.csv", [{"step": step, "val_loss": None, "val_iou": score} for step, score in curve])
    (out / "metrics.json").write_text(json.dumps(document))


def claims_of(final, coarse, schema):
    if "SCC" not in schema.names:
        return {}
    scc = schema.index("SCC")

    def wrong(tables):
        total = np.sum(tables, axis=0)
        return int(total[:, scc].sum() - total[scc, scc])

    return {"scc_false_positives": {"coarse": None if coarse is None else wrong(coarse), "final": wrong(final)}}


def interface_tables(sections, pairs, schema=SKIN):
    """(S, K, K) tables from ``pairs[(one, other)] = (pixels, wrong, corrected, broken)``, the same in each section."""
    kinds = ("pixels", "wrong", "corrected", "broken")
    tables = {kind: np.zeros((sections, len(schema), len(schema)), dtype=np.int64) for kind in kinds}
    for (one, other), counts in pairs.items():
        for kind, count in zip(kinds, counts, strict=True):
            tables[kind][:, schema.index(one), schema.index(other)] = count
    return tables


def write_all(root, plan, random, *, sections=10, accuracy=lambda job: 0.6, skip=(), **options):
    """Every run of a plan; ``skip`` has keys of runs that shall be missing."""
    for job in plan.jobs:
        if job.key in skip:
            continue
        has_coarse = job.variant.arch in WITH_COARSE
        coarse = confusions(random, sections, 0.4) if has_coarse else None
        counts = {("BCC", "RET"): (100, 20, 30, 5), ("RET", "HYP"): (100, 30, 10, 10)}
        write_job(
            root / job.key,
            job,
            confusions(random, sections, accuracy(job)),
            coarse=coarse,
            interfaces=interface_tables(sections, counts) if has_coarse else interface_tables(sections, {}),
            **options,
        )


PATIENTS = {f"S{k}": f"P{k}" for k in range(20)}  # Of the sections that ``write_job`` names itself


def read(root, plan, failures=None, patients=PATIENTS):
    return PlanResults.read(plan, lambda job: root / job.key, failures or {}, patients)
