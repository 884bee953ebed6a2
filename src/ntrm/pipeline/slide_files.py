"""The files that follow from a slide's mask and its regions: of the network's mask, and of a corrected one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ntrm.analysis.regions import Regions
from ntrm.core.arrays import Bytes
from ntrm.core.labels import LabelSchema
from ntrm.export.geojson import write_geojson
from ntrm.export.ome_tiff import write_mask_ome_tiff
from ntrm.pipeline.assessment import graph_text, piece_summary, slide_cancers
from ntrm.pipeline.measurements import (
    PieceFindings,
    class_areas,
    fractions,
    interface_rows,
    region_rows,
    rest_graph,
    tissue_area,
)
from ntrm.results.documents import Correction, Grid, StainNorm, Summary, crumb_warnings
from ntrm.results.familiarity import NOT_ASSESSED, UNLIKE, SlideFamiliarity
from ntrm.results.graph_document import Network, write_graph
from ntrm.results.json_files import Document
from ntrm.results.paths import MASK, REGIONS
from ntrm.results.run_record import Run
from ntrm.results.slide_state import Tables
from ntrm.results.tables import piece_row, slide_row
from ntrm.wsi.pieces import NO_PIECE


@dataclass(frozen=True, eq=False)
class SlideFiles:
    """A folder of files about one mask of a slide, and what all of them say about slide and run."""

    folder: Path
    slide_id: str
    grid: Grid
    schema: LabelSchema
    run: Run
    corrected: Correction | None = None
    """None for the network's mask."""

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
        words = "" if made is None else f"{made.text}, {made.area_mm2:.6g} mm², steps {made.log}"
        return {
            "slide_id": self.slide_id,
            **{key: str(value) for key, value in run.cells().items() if key != "ntrm_version"},
            "slide µm/px": f"{grid.slide_mpp[0]:.9g} {grid.slide_mpp[1]:.9g}",
            "to level 0 (sx sy ox oy)": " ".join(f"{value:.9g}" for value in grid.to_level0),
            "options": " ".join(f"{key}={value}" for key, value in run.options.items()),
            "purpose": run.purpose,
            **({"corrected": words} if words else {}),
        }

    def write_mask(self, labels: Bytes) -> None:
        """Write ``mask.ome.tif``."""
        about: dict[str, Any] = {"name": self.slide_id, "metadata": self.metadata()}
        write_mask_ome_tiff(self.folder / MASK, labels, self.schema, self.grid.resolution, **about)

    def write_polygons(self, regions: Regions, familiarity: SlideFamiliarity | None) -> None:
        """The file for QuPath; of an unfamiliar slide, each annotation says that cancers are not assessed."""
        warnings = [] if familiarity is None else [*familiarity.warnings]
        options = self.run.options
        write_geojson(
            self.folder / REGIONS,
            regions,
            self.schema,
            to_level0=self.grid.to_level0,
            bounds=self.grid.bounds,
            simplify_um=options["simplify_um"],
            gzip=options["gzip"],
            metadata=self._note(familiarity),
            document={**self.about, "warnings": warnings} if warnings else self.about,
            # Both versions of a slide may be opened in QuPath together.
            identity=self.slide_id if self.corrected is None else f"{self.slide_id}|corrected",
        )

    def _note(self, familiarity: SlideFamiliarity | None) -> dict[str, str] | None:
        """What each annotation says."""
        unlike = familiarity is not None and not familiarity.slide.assessed
        but = "" if self.corrected is None else "; what a person named is their word"
        note = {"cancers": f"{NOT_ASSESSED}: {UNLIKE}{but}"} if unlike else {}
        return note | ({} if self.corrected is None else {"corrected": self.corrected.text}) or None

    def write_graph(
        self,
        regions: Regions,
        pieces: Sequence[PieceFindings],
        familiarity: SlideFamiliarity,
        network: Network | None = None,
    ) -> None:
        """Write ``graph.json``; ``network`` is what the network itself used."""
        ruled = [(each.piece.number, each, familiarity.ruling(each.piece.number)) for each in pieces]
        graphs = {number: (graph_text(each, ruling), each.graph.as_node_link()) for number, each, ruling in ruled}
        write_graph(self.folder, self.about, network, graphs, rest_graph(regions.table, self.schema))

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
