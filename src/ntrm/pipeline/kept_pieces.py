"""The pieces of a segmented slide: as the segmentation kept them, or found again where an earlier version kept none.

They follow from the slide alone, or without a tissue mask from the network's mask. So no network is needed, but what is
found must be what the tables of the slide say: a later version may see tissue otherwise.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

from ntrm.core.errors import DataError, RefusedError
from ntrm.core.labels import Mask
from ntrm.pipeline.correcting import SlideMask, slide_grid
from ntrm.pipeline.measurements import scan_slide
from ntrm.results.documents import AGAIN
from ntrm.results.paths import HIDDEN, PIECES
from ntrm.results.slide_state import finished
from ntrm.wsi.inputs import SlideInput
from ntrm.wsi.pieces import PieceMap


def has_pieces(mask: SlideMask) -> bool:
    """Whether they were kept."""
    return (mask.folder / HIDDEN / PIECES).is_file()


def read_pieces(mask: SlideMask) -> PieceMap:
    """The pieces of the segmentation; results of earlier versions have none until ``find_pieces_again``."""
    if not has_pieces(mask):
        raise DataError(
            f"{mask.folder.name} is of an earlier version, which kept no map of its pieces",
            expected="the slide itself, once: the pieces are found in it again, without the network",
            hint=f"say where the slides are, as in ntrm correct … --slides FOLDER; or {AGAIN}",
        )
    return PieceMap.read(mask.folder / HIDDEN / PIECES, hint=AGAIN)


def find_pieces_again(mask: SlideMask, slide: SlideInput) -> None:
    """Find the pieces in the slide, and keep them; refuses those that are not the ones of the results."""
    from ntrm.wsi.isolated import open_isolated

    labels = mask.labels()
    with closing(open_isolated(slide.path, alone=slide.alone)) as reader:
        pieces = _found(mask, labels, slide_grid(mask, slide, reader))
    got, expected = _regions_in(mask, labels, pieces), _regions_told(mask)
    if got != expected:
        raise RefusedError(
            f"{mask.folder.name} is of an earlier version, which saw its pieces otherwise",
            got=f"{len(pieces.pieces)} pieces, {len(got)} regions",
            expected=f"{len(mask.summary.pieces)} pieces, {len(expected)} regions",
            hint=AGAIN,
        )
    pieces.save(mask.folder / HIDDEN / PIECES)


def _found(mask: SlideMask, labels: Mask, grid: Any) -> PieceMap:
    from ntrm.pipeline.overview import find_slide_tissue, tissue_of

    seen, _, tissue = find_slide_tissue(grid)
    is_masked = bool(mask.summary.options["tissue_mask"])
    return PieceMap.of(tissue_of(labels, mask.schema, tissue, tissue_mask=is_masked), seen.scale)


def _regions_in(mask: SlideMask, labels: Mask, pieces: PieceMap) -> list[tuple[int, str]]:
    """Piece and tissue of each region."""
    table = scan_slide(labels, None, pieces, schema=mask.schema, resolution=mask.resolution).table
    names = mask.schema.names
    return [(piece, names[tissue]) for piece, tissue in zip(table.piece.tolist(), table.tissue.tolist(), strict=True)]


def _regions_told(mask: SlideMask) -> list[tuple[int, str]]:
    """The same as the tables have it."""
    state = finished(mask.folder)
    rows = () if state is None else state.tables["regions"]
    return [(int(row["piece"] or 0), str(row["tissue"])) for row in rows]
