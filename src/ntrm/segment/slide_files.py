"""The files that follow from a slide's mask and its regions: of the network's mask, and of a corrected one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ntrm.core.arrays import Bytes
from ntrm.core.io import Document, write_json
from ntrm.core.labels import CANCERS, CancerFinding, LabelSchema
from ntrm.export.geojson import write_geojson
from ntrm.export.ome_tiff import write_mask_ome_tiff
from ntrm.regions.cancers import cancers_of, confirmed_regions
from ntrm.regions.graph import tissue_graph_of
from ntrm.regions.region_table import RegionTable
from ntrm.regions.regions import Regions
from ntrm.results.documents import (
    IN_CRUMBS,
    NAMED_IN_CRUMBS,
    Cancer,
    Correction,
    Grid,
    Network,
    PieceSummary,
    StainNorm,
    Summary,
    crumb_warnings,
)
from ntrm.results.familiarity import NOT_ASSESSED, UNLIKE, SlideFamiliarity
from ntrm.results.manifest import Manifest
from ntrm.results.paths import GRAPH, MASK, REGIONS
from ntrm.results.slide_state import Tables
from ntrm.results.tables import piece_row, slide_row
from ntrm.segment.measurements import MeasuredPiece, class_areas, in_tissue, interface_rows, region_rows
from ntrm.slides.pieces import LEAST_MM2, NO_PIECE


def slide_cancers(pieces: Sequence[PieceSummary], crumbs: RegionTable, schema: LabelSchema) -> dict[str, Cancer]:
    """By cancer: present if in any piece, as sure as the surest piece, areas and regions together.

    Pieces that are not assessed do not count, unless no piece is: then area and regions are what the network says. So
    they are of a slide without pieces, which has nothing but ``crumbs``. Where the rule finds a cancer in those that it
    does not find in any piece, it is neither present nor absent: crumbs may come from anywhere. Where a person named it
    there, it is present: they have seen the slide.
    """
    own, every = (
        {each.name: each for each in cancers_of(crumbs, schema, among) if each.present}
        for among in (confirmed_regions(crumbs), None)
    )
    found: dict[str, dict[int, CancerFinding]] = {name: {} for name in CANCERS if name in schema.names}
    for piece in pieces:
        for cancer in piece.cancers:
            found[cancer.name][piece.number] = cancer
    if pieces:
        cancers = {name: _in_all(by_piece) for name, by_piece in found.items()}
    else:
        reason = f"{NOT_ASSESSED}: no piece of tissue of {LEAST_MM2:g} mm² or more"
        of = {name: crumbs.tissue == schema.index(name) for name in found}
        cancers = {k: Cancer(None, None, float(crumbs.area_mm2[r].sum()), int(r.sum()), reason) for k, r in of.items()}
    return {name: _beside_crumbs(cancer, own.get(name), every.get(name)) for name, cancer in cancers.items()}


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


def _in_all(found: Mapping[int, CancerFinding]) -> Cancer:
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

    def write_graph(self, regions: Regions, pieces: Sequence[MeasuredPiece], network: Network | None = None) -> None:
        """Write ``graph.json``; ``network`` is what the network itself used."""
        graphs = [
            {"piece": piece.number, "text": [*text], "graph": graph.as_node_link()} for piece, graph, text in pieces
        ]
        rest = regions.table.of_piece(NO_PIECE)
        outside = {"piece": 0, "graph": tissue_graph_of(rest, self.schema).as_node_link()} if len(rest) else None
        write_json(self.folder / GRAPH, {**self.about, "network": network, "pieces": graphs, "outside_pieces": outside})

    def summary(
        self,
        regions: Regions,
        pieces: Sequence[MeasuredPiece],
        familiarity: SlideFamiliarity,
        *,
        quality: Mapping[str, float | bool],
        quality_warnings: Sequence[str],
        small_regions: Document | None,
        stain_norm: StainNorm | None,
    ) -> Summary:
        """What ``summary.json`` says."""
        run, schema, areas_mm2 = self.run, self.schema, class_areas(regions, self.schema)
        tissue, fractions = in_tissue(areas_mm2, schema)
        summaries = tuple(each.summary for each in pieces)
        cancers = slide_cancers(summaries, regions.table.of_piece(NO_PIECE), schema)
        return Summary(
            slide_id=self.slide_id,
            program=run.program,
            model=run.model,
            options=run.options,
            classes=schema.names,
            purpose=run.purpose,
            grid=self.grid,
            quality=quality,
            familiarity=familiarity.slide,
            warnings=(*familiarity.warnings, *crumb_warnings(cancers), *quality_warnings),
            tissue_area_mm2=tissue,
            areas_mm2=areas_mm2,
            tissue_fractions=fractions,
            cancers=cancers,
            pieces=summaries,
            small_regions=small_regions,
            stain_norm=stain_norm,
            corrected=self.corrected,
        )

    def tables(self, summary: Summary, regions: Regions, pieces: Sequence[MeasuredPiece]) -> Tables:
        """The rows of the tables."""
        rows = region_rows(self.slide_id, regions.table, grid=self.grid, schema=self.schema)
        return {
            "slides": (slide_row(summary),),
            "pieces": tuple(piece_row(summary, piece) for piece in summary.pieces),
            "regions": tuple(rows),
            "interfaces": tuple(
                row for piece, graph, _ in pieces for row in interface_rows(self.slide_id, piece.number, graph)
            ),
        }
