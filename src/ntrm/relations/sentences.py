"""The tissue graph and the measurements in plain words, units and purpose included."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ntrm.core.labels import CANCERS
from ntrm.relations.measured import PURPOSE, Measured
from ntrm.report.formatting import area_text

if TYPE_CHECKING:
    from ntrm.relations.graph import TissueGraph
    from ntrm.relations.measure import PieceMeasurements

NOTHING = "No tissue was found."


def graph_sentences(graph: TissueGraph) -> tuple[str, ...]:
    """What there is most of, and where the tumours lie."""
    if not graph.present:
        return (NOTHING,)
    order = sorted(graph.present, key=lambda tissue: -graph.areas_mm2[tissue])
    most = [f"{_title(graph, tissue)} ({graph.fractions[tissue]:.0%})" for tissue in order[:3]]
    counts = graph.regions.counts(len(graph.schema))
    first = f"{area_text(graph.areas_mm2.sum())} mm² of tissue, most of it {_list(most)}."
    tumours = [tissue for tissue in graph.present if graph.schema.names[tissue] in CANCERS]
    return (first, *(_tumour(graph, tissue, int(counts[tissue])) for tissue in tumours))


def _tumour(graph: TissueGraph, tissue: int, count: int) -> str:
    text = f"{_title(graph, tissue).capitalize()}: {area_text(graph.areas_mm2[tissue])} mm² in {count} region"
    text += "" if count == 1 else "s"
    share = graph.boundary_share[tissue]
    beside = [at for at in np.argsort(-share, kind="stable")[:2] if share[at] > 0]
    if not beside:
        return f"{text}."
    return f"{text}, bordering mostly on {_list([f'{_title(graph, int(at))} ({share[at]:.0%})' for at in beside])}."


def measurement_sentences(measured: PieceMeasurements) -> tuple[str, ...]:
    """Each measurement with its unit, or why there is none; the purpose last."""
    parts = (measured.clearance.deep, measured.clearance.lateral, measured.depth)
    lines = [_sentence(part) for part in parts]
    facing = measured.orientation
    if facing.value is None:
        lines.append(_sentence(facing))
    else:
        lines.append(f"The skin surface faces {facing.value:.0f}° clockwise from the top of the picture.")
    if measured.strays:
        lines.append(_strays(measured.strays))
    return (*lines, f"These numbers are {PURPOSE}.")


def _strays(count: int) -> str:
    some = "1 stray spot" if count == 1 else f"{count} stray spots"
    return f"{some} of tumour did not count for clearance: too small or too unsure, and far from any larger part."


def _sentence(part: Measured) -> str:
    text = str(part)
    return f"{text[0].upper()}{text[1:]}."


def _title(graph: TissueGraph, at: int) -> str:
    if at >= len(graph.schema):
        return "the outside"
    tissue = graph.schema.tissues[at]
    return tissue.title or tissue.name


def _list(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
