"""Evaluation folders in the layout that ``ntrm evaluate`` writes, from random confusion counts."""

import json

import numpy as np

from ntrm.core.labels import LabelSchema, Tissue
from ntrm.metrics.overlap import pooled

SCHEMA = LabelSchema(tuple(Tissue(k, name, name, (k, k, k)) for k, name in enumerate(("EPI", "BCC", "RET", "BKG"))))


def truth_counts(random, sections=12):
    """True pixels of each class in each section: what all models of a comparison share."""
    return random.integers(200, 2000, (sections, len(SCHEMA)))


def confusions(random, truth, skill):
    """(S, K, K) counts in which each pixel is right with about the chance ``skill``."""
    classes = truth.shape[1]
    counts = np.zeros((*truth.shape, classes), dtype=np.int64)
    for section, true in enumerate(truth):
        chance = np.clip(skill + 0.03 * random.standard_normal(), 0.05, 0.95)
        for label, pixels in enumerate(true):
            shares = np.full(classes, (1 - chance) / (classes - 1))
            shares[label] = chance
            counts[section, label] = random.multinomial(pixels, shares)
    return counts


def write_evaluation(folder, counts, *, patients=None, names=None, data=None, classes=SCHEMA.names, **model):
    """Write ``metrics.json`` and ``confusions.npz``; ``model`` and ``data`` change single fields."""
    folder.mkdir(parents=True)
    sections = len(counts)
    names = names or [f"BCC_{number}" for number in range(sections)]
    patients = patients or [f"patient-{number // 2}" for number in range(sections)]
    document = {
        "model": {
            "name": "",
            "arch": "ntrm-control",
            "options": {"width": 0.5},
            "version": "",
            "sha256": f"sha-{folder}",
            "seed": 0,
            "recipe": "fast",
            "encoder_init": "imagenet",
            "level": "10x",
            "mpp": 6.7,
            "temperature": 1.0,
            **model,
        },
        "data": {
            "fingerprint": "0123456789abcdef",
            "split": "test",
            "level": "10x",
            "mpp": 6.7,
            "sections": sections,
            "patients": len(set(patients)),
            **(data or {}),
        },
        "classes": list(classes),
        "pooled": pooled(counts, SCHEMA).as_dict() if counts.shape[1] == len(SCHEMA) else {"pixel_accuracy": None},
        "stitching": {"window": 256, "overlap": 64},
    }
    (folder / "metrics.json").write_text(json.dumps(document))
    np.savez(folder / "confusions.npz", names=np.array(names), patients=np.array(patients), final=counts)
    return folder
