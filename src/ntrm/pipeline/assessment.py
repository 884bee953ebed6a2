"""What is said about cancers: the findings, or that a slide or a piece is unlike what the model knows.

Areas, regions and borders stay in all files, since they are what the network says. Presence, confidence, clearance and
depth are conclusions, and of an unfamiliar slide none is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence

from ntrm.analysis.measure import Measured, sentences_of
from ntrm.core.errors import RefusedError
from ntrm.core.labels import LabelSchema
from ntrm.metrics.cancer_rule import CancerFinding
from ntrm.pipeline.measurements import MEASUREMENTS, PieceFindings, fractions, tissue_area
from ntrm.pipeline.options import Options
from ntrm.results.documents import Box, Cancer, PieceCancer, PieceSummary
from ntrm.results.familiarity import NOT_ASSESSED, UNLIKE, Familiarity, SlideFamiliarity

FROM_TUMOUR = ("deep_clearance", "lateral_clearance", "invasion_depth")
"""Measurements for which the tumour must be known."""


def refuse_unfamiliar(familiarity: SlideFamiliarity, options: Options) -> None:
    """A strict run has no results of a slide that is unlike what its model knows."""
    if options.strict and not familiarity.slide.assessed:
        raise RefusedError(
            f"the slide is {UNLIKE}",
            got=f"p = {familiarity.slide.p_value:.2g}: {'; '.join(familiarity.slide.reasons)}",
            hint="train or fine-tune on slides like this one, or run without --strict",
        )


def piece_summary(findings: PieceFindings, schema: LabelSchema, familiarity: SlideFamiliarity) -> PieceSummary:
    """A piece for ``summary.json``."""
    window, number = findings.window, findings.piece.number
    ruling = familiarity.ruling(number)
    return PieceSummary(
        number=number,
        mask_box_px=Box(window.top, window.left, window.height, window.width),
        touches_edge=findings.touches_edge,
        tissue_area_mm2=tissue_area(findings.areas_mm2, schema),
        areas_mm2=findings.areas_mm2,
        tissue_fractions=fractions(findings.areas_mm2, schema),
        measurements={name: each.record() for name, each in _measured(findings, ruling).items()},
        cancers=tuple(_piece_cancer(each, ruling) for each in findings.cancers),
        text=_piece_text(findings, ruling),
        familiarity=familiarity.of_piece(number),
    )


def _piece_cancer(found: CancerFinding, ruling: Familiarity) -> PieceCancer:
    if ruling.assessed:
        return PieceCancer(**found.as_dict())
    reason = f"{NOT_ASSESSED}: {ruling.why_not_assessed}"
    return PieceCancer(found.name, None, found.area_mm2, found.regions, None, reason)


def slide_cancers(pieces: Sequence[PieceFindings], familiarity: SlideFamiliarity) -> dict[str, Cancer]:
    """By cancer: present if in any piece, as sure as the surest piece, areas and regions together.

    Pieces that are not assessed do not count, unless no piece is: then area and regions are what the network says.
    """
    left_out = [each.piece.number for each in pieces if not familiarity.ruling(each.piece.number).assessed]
    if pieces and len(left_out) == len(pieces):
        worst = familiarity.ruling(left_out[0])
        return _totals(pieces, assessed=False, reason=f"{NOT_ASSESSED}: {worst.why_not_assessed}")
    counted = [each for each in pieces if each.piece.number not in left_out]
    which = f"piece{'' if len(left_out) == 1 else 's'} {', '.join(map(str, left_out))} {NOT_ASSESSED}"
    return _totals(counted, assessed=True, reason=which if left_out else "")


def _totals(pieces: Sequence[PieceFindings], *, assessed: bool, reason: str) -> dict[str, Cancer]:
    by_name: dict[str, list[CancerFinding]] = {}
    for finding in (finding for piece in pieces for finding in piece.cancers):
        by_name.setdefault(finding.name, []).append(finding)
    return {
        name: Cancer(
            present=any(each.present for each in found) if assessed else None,
            confidence=max(each.confidence for each in found) if assessed else None,
            area_mm2=sum(each.area_mm2 for each in found),
            regions=sum(each.regions for each in found),
            reason=reason,
        )
        for name, found in by_name.items()
    }


def _measured(findings: PieceFindings, ruling: Familiarity) -> dict[str, Measured]:
    known = {name: findings.measured[name] for name in MEASUREMENTS}
    if ruling.assessed:
        return known
    return {
        name: Measured(each.name, None, each.unit, UNLIKE) if name in FROM_TUMOUR else each
        for name, each in known.items()
    }


def graph_text(findings: PieceFindings, ruling: Familiarity) -> tuple[str, ...]:
    """The tissue graph of a piece in plain words."""
    if ruling.assessed:
        return findings.graph.sentences()
    return (*findings.graph.sentences(tumours=False), f"Tumours: {NOT_ASSESSED}, {ruling.why_not_assessed}.")


def _piece_text(findings: PieceFindings, ruling: Familiarity) -> tuple[str, ...]:
    """Graph and measurements in plain words."""
    if ruling.assessed:
        return findings.text
    measured = _measured(findings, ruling)
    lengths = [measured[name] for name in FROM_TUMOUR]
    return (*graph_text(findings, ruling), *sentences_of(lengths, measured["orientation"]))
