"""What is measured on the masks of one section, without a network: boundaries, relations, interfaces, cancers.

This needs no torch, and takes longer than the prediction on an accelerator: other processes measure sections while the
next ones are predicted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ntrm.core.labels import IGNORE, CancerFinding, LabelSchema, Mask
from ntrm.core.mpp import Resolution
from ntrm.data.cache import CachedSection
from ntrm.evaluation.interfaces import InterfaceCounts, interface_counts
from ntrm.metrics.boundary import BoundaryAgreement, boundary_agreement
from ntrm.metrics.graph_agreement import GraphAgreement, graph_agreement
from ntrm.regions.cancers import cancer_types


@dataclass(frozen=True, eq=False)
class MasksToMeasure:
    """One predicted section. Whoever measures it reads the ground truth from the section's memory map."""

    section: CachedSection
    table: Mask  # (256,) from the dataset's classes to the network's
    mask: Mask
    confidence: NDArray[np.float32]
    coarse: Mask | None
    schema: LabelSchema  # Of the network
    resolution: Resolution
    boundaries: bool = True  # Whether to measure the distances of boundaries, which takes longest


@dataclass(frozen=True, eq=False)
class Measures:
    """What is measured on one section."""

    boundary: BoundaryAgreement | None
    graph: GraphAgreement
    interfaces: InterfaceCounts
    cancers: tuple[CancerFinding, ...]  # Of the prediction; empty where the schema knows no cancer
    true_cancers: tuple[CancerFinding, ...]  # Of the ground truth, by the same rule


def measure(task: MasksToMeasure) -> Measures:
    """Measure one section."""
    truth, schema, resolution = task.table[task.section.mask], task.schema, task.resolution
    # Nobody said what is right where the truth is unknown: a tumour there is neither found nor invented.
    known = np.where(truth == IGNORE, truth, task.mask)
    return Measures(
        boundary=boundary_agreement(truth, task.mask, schema, resolution) if task.boundaries else None,
        graph=graph_agreement(truth, task.mask, schema, resolution),
        interfaces=interface_counts(truth, task.mask, task.coarse, schema),
        cancers=cancer_types(known, task.confidence, schema, resolution),
        true_cancers=cancer_types(truth, None, schema, resolution),
    )
