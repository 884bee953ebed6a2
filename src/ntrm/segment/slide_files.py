"""The files that follow from a slide's mask and its regions: of the network's mask, and of a corrected one.

What is said about cancers is the findings, or that a slide or a piece is unlike what the model knows. Areas, regions
and borders stay in all files, since they are what the network says. Presence, confidence, clearance and depth are
conclusions, and of an unfamiliar slide none is drawn from what the network says. Once a person corrects the slide, a
cancer that they name is present by their word; what they did not name stays not assessed, and clearance and depth are
measured only where all of the tumour is theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ntrm.core.arrays import Bytes
from ntrm.core.io import write_json
from ntrm.core.labels import CANCERS, LabelSchema
from ntrm.export.geojson import write_geojson
from ntrm.export.ome_tiff import write_mask_ome_tiff
from ntrm.regions.cancers import CancerFinding, cancers_of, confirmed_regions
from ntrm.regions.measure import Measurement, sentences_of
from ntrm.regions.region_table import RegionTable
from ntrm.regions.regions import Regions
from ntrm.results.documents import (
    IN_CRUMBS,
    NAMED_IN_CRUMBS,
    Box,
    Cancer,
    Correction,
    Grid,
    Measure,
    Network,
    PieceCancer,
    PieceSummary,
    StainNorm,
    Summary,
    crumb_warnings,
)
from ntrm.results.familiarity import NOT_ASSESSED, UNLIKE, Familiarity, SlideFamiliarity
from ntrm.results.json_files import Document
from ntrm.results.manifest import Manifest
from ntrm.results.paths import GRAPH, MASK, REGIONS
from ntrm.results.slide_state import Tables
from ntrm.results.tables import piece_row, slide_row
from ntrm.segment.measurements import (
    PieceFindings,
    class_areas,
    fractions,
    interface_rows,
    region_rows,
    rest_graph,
    tissue_area,
)
from ntrm.slides.pieces import LEAST_MM2, NO_PIECE

FROM_TUMOUR = ("deep_clearance", "lateral_clearance", "invasion_depth")
"""Measurements for which the tumour must be known."""


def piece_summary(findings: PieceFindings, schema: LabelSchema, familiarity: SlideFamiliarity) -> PieceSummary:
    """A piece for ``summary.json``."""
    window, number = findings.window, findings.piece.number
    ruling, measured, text = familiarity.ruling(number), findings.measured, findings.text
    if not (ruling.assessed or findings.tumour_confirmed):
        unlike = {name: Measurement(measured[name].name, None, measured[name].unit, UNLIKE) for name in FROM_TUMOUR}
        measured = measured | unlike
        text = (*graph_text(findings, ruling), *sentences_of([*unlike.values()], measured["orientation"]))
    return PieceSummary(
        number=number,
        mask_box_px=Box(window.top, window.left, window.height, window.width),
        touches_edge=findings.touches_edge,
        tissue_area_mm2=tissue_area(findings.areas_mm2, schema),
        areas_mm2=findings.areas_mm2,
        tissue_fractions=fractions(findings.areas_mm2, schema),
        measurements={name: Measure(m.value, m.unit, m.reason, m.line) for name, m in measured.items()},
        cancers=_piece_cancers(findings, ruling),
        text=text,
        familiarity=familiarity.of_piece(number),
    )


def _piece_cancers(findings: PieceFindings, ruling: Familiarity) -> tuple[PieceCancer, ...]:
    """The cancers of a piece, by the rule; of an unfamiliar piece, only those that a person has named."""
    if ruling.assessed:
        return tuple(PieceCancer(**found.as_dict()) for found in findings.cancers)
    named = {found.name: PieceCancer(**found.as_dict()) for found in findings.confirmed if found.present}
    reason = f"{NOT_ASSESSED}: {ruling.why_not_assessed}"
    return tuple(
        named.get(found.name) or PieceCancer(found.name, None, found.area_mm2, found.regions, None, reason)
        for found in findings.cancers
    )


def slide_cancers(
    pieces: Sequence[PieceFindings], familiarity: SlideFamiliarity, crumbs: RegionTable, schema: LabelSchema
) -> dict[str, Cancer]:
    """By cancer: present if in any piece, as sure as the surest piece, areas and regions together.

    Pieces that are not assessed do not count, unless no piece is: then area and regions are what the network says. So
    they are of a slide without pieces, which has nothing but ``crumbs``. Where the rule finds a cancer in those that it
    does not find in any piece, it is neither present nor absent: crumbs may come from anywhere. Where a person named it
    there, it is present: they have seen the slide.
    """
    named = {each.name: each for each in cancers_of(crumbs, schema, confirmed_regions(crumbs)) if each.present}
    if not pieces:
        alone = {name: _in_crumbs(crumbs, schema.index(name)) for name in CANCERS if name in schema.names}
        return {name: _beside_crumbs(cancer, named.get(name), None) for name, cancer in alone.items()}
    by_name: dict[str, dict[int, PieceCancer]] = {}
    for each in pieces:
        for cancer in _piece_cancers(each, familiarity.ruling(each.piece.number)):
            by_name.setdefault(cancer.name, {})[each.piece.number] = cancer
    beside = {each.name: each for each in cancers_of(crumbs, schema) if each.present}
    return {name: _beside_crumbs(_in_all(found), named.get(name), beside.get(name)) for name, found in by_name.items()}


def _beside_crumbs(cancer: Cancer, named: CancerFinding | None, found: CancerFinding | None) -> Cancer:
    """The cancer of all pieces, with what a person ``named`` and what the rule ``found`` in crumbs beside them."""
    if named is not None and not cancer.present:
        known, rest = cancer.present is not None, f"the rest {NOT_ASSESSED}"
        return Cancer(
            present=True,
            confidence=named.confidence,
            area_mm2=named.area_mm2 + known * cancer.area_mm2,
            regions=named.regions + known * cancer.regions,
            reason="; ".join(filter(None, (NAMED_IN_CRUMBS, cancer.reason if known else rest))),
        )
    if found is not None and cancer.present is False:
        return Cancer(None, None, cancer.area_mm2 + found.area_mm2, cancer.regions + found.regions, IN_CRUMBS)
    return cancer


def _in_crumbs(crumbs: RegionTable, tissue: int) -> Cancer:
    own = crumbs.tissue == tissue
    reason = f"{NOT_ASSESSED}: no piece of tissue of {LEAST_MM2:g} mm² or more"
    return Cancer(None, None, float(crumbs.area_mm2[own].sum()), int(own.sum()), reason)


def _in_all(found: Mapping[int, PieceCancer]) -> Cancer:
    """One cancer in all pieces, given by their numbers."""
    assessed = [cancer for cancer in found.values() if cancer.present is not None]
    left_out = [number for number, cancer in found.items() if cancer.present is None]
    counted = assessed or [*found.values()]
    which = f"piece{'' if len(left_out) == 1 else 's'} {', '.join(map(str, left_out))} {NOT_ASSESSED}"
    return Cancer(
        present=any(cancer.present for cancer in assessed) if assessed else None,
        confidence=max(cancer.confidence or 0.0 for cancer in assessed) if assessed else None,
        area_mm2=sum(cancer.area_mm2 for cancer in counted),
        regions=sum(cancer.regions for cancer in counted),
        reason=("" if not left_out else which) if assessed else found[left_out[0]].reason,
    )


def graph_text(findings: PieceFindings, ruling: Familiarity) -> tuple[str, ...]:
    """The tissue graph of a piece in plain words."""
    if ruling.assessed or findings.tumour_confirmed:
        return findings.graph.sentences()
    return (*findings.graph.sentences(tumours=False), f"Tumours: {NOT_ASSESSED}, {ruling.why_not_assessed}.")


@dataclass(frozen=True, eq=False)
class SlideFiles:
    """A folder of files about one mask of a slide, and what all of them say about slide and run."""

    folder: Path
    slide_id: str
    grid: Grid
    schema: LabelSchema
    run: Manifest
    corrected: Correction | None = None  # None for the network's mask

    @property
    def about(self) -> Document:
        """The origin of a JSON document."""
        about = {"slide_id": self.slide_id, **self.run.identity(), "grid": asdict(self.grid)}
        if self.corrected is not None:
            about["corrected"] = asdict(self.corrected) | {"text": self.corrected.text}
        return about

    def metadata(self) -> dict[str, str]:
        """The origin of a file, for formats that take keys and texts only."""
        grid, run = self.grid, self.run
        made = self.corrected
        words = {} if made is None else {"corrected": f"{made.text}, {made.area_mm2:.6g} mm², steps {made.log}"}
        return {
            "slide_id": self.slide_id,
            **{key: str(value) for key, value in run.cells().items() if key != "ntrm_version"},
            "slide µm/px": f"{grid.slide_mpp[0]:.9g} {grid.slide_mpp[1]:.9g}",
            "to level 0 (sx sy ox oy)": " ".join(f"{value:.9g}" for value in grid.to_level0),
            "options": " ".join(f"{key}={value}" for key, value in run.options.items()),
            "purpose": run.purpose,
            **words,
        }

    def write_mask(self, labels: Bytes) -> None:
        """Write ``mask.ome.tif``."""
        path, resolution = self.folder / MASK, self.grid.resolution
        write_mask_ome_tiff(path, labels, self.schema, resolution, name=self.slide_id, metadata=self.metadata())

    def write_polygons(self, regions: Regions, familiarity: SlideFamiliarity) -> None:
        """The file for QuPath; of an unfamiliar slide, each annotation says that cancers are not assessed."""
        options, note = self.run.options, {}
        if not familiarity.slide.assessed:
            but = "" if self.corrected is None else "; what a person named is their word"
            note["cancers"] = f"{NOT_ASSESSED}: {UNLIKE}{but}"
        if self.corrected is not None:
            note["corrected"] = self.corrected.text
        warnings = {"warnings": [*familiarity.warnings]} if familiarity.warnings else {}
        write_geojson(
            self.folder / REGIONS,
            regions,
            self.schema,
            to_level0=self.grid.to_level0,
            bounds=self.grid.bounds,
            simplify_um=options["simplify_um"],
            gzip=options["gzip"],
            metadata=note or None,
            document={**self.about, **warnings},
            # Both versions of a slide may be opened in QuPath together.
            identity=self.slide_id if self.corrected is None else f"{self.slide_id}|corrected",
        )

    def write_graph(
        self,
        regions: Regions,
        pieces: Sequence[PieceFindings],
        familiarity: SlideFamiliarity,
        network: Network | None = None,
    ) -> None:
        """Write ``graph.json``; ``network`` is what the network itself used."""
        graphs = [
            {
                "piece": each.piece.number,
                "text": [*graph_text(each, familiarity.ruling(each.piece.number))],
                "graph": each.graph.as_node_link(),
            }
            for each in pieces
        ]
        rest = rest_graph(regions.table, self.schema)
        outside = None if rest is None else {"piece": 0, "graph": rest}
        write_json(self.folder / GRAPH, {**self.about, "network": network, "pieces": graphs, "outside_pieces": outside})

    def summary(
        self,
        regions: Regions,
        pieces: Sequence[PieceFindings],
        familiarity: SlideFamiliarity,
        *,
        quality: Mapping[str, float | bool],
        quality_warnings: Sequence[str],
        small_regions: Document | None,
        stain_norm: StainNorm | None,
    ) -> Summary:
        """What ``summary.json`` says."""
        run, schema, areas_mm2 = self.run, self.schema, class_areas(regions, self.schema)
        cancers = slide_cancers(pieces, familiarity, regions.table.of_piece(NO_PIECE), schema)
        return Summary(
            slide_id=self.slide_id,
            program=run.program,
            model=run.model,
            options=run.options,
            classes=run.classes,
            purpose=run.purpose,
            grid=self.grid,
            quality=quality,
            familiarity=familiarity.slide,
            warnings=(*familiarity.warnings, *crumb_warnings(cancers), *quality_warnings),
            tissue_area_mm2=tissue_area(areas_mm2, schema),
            areas_mm2=areas_mm2,
            tissue_fractions=fractions(areas_mm2, schema),
            cancers=cancers,
            pieces=tuple(piece_summary(piece, schema, familiarity) for piece in pieces),
            small_regions=small_regions,
            stain_norm=stain_norm,
            corrected=self.corrected,
        )

    def tables(self, summary: Summary, regions: Regions, pieces: Sequence[PieceFindings]) -> Tables:
        """The rows of the tables."""
        rows = region_rows(self.slide_id, regions.table, grid=self.grid, schema=self.schema)
        return {
            "slides": (slide_row(summary),),
            "pieces": tuple(piece_row(summary, piece) for piece in summary.pieces),
            "regions": tuple(rows),
            "interfaces": tuple(row for piece in pieces for row in interface_rows(self.slide_id, piece)),
        }
