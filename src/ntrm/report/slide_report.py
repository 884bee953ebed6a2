"""``report.html``: everything about one slide on one page, from the files of its folder alone. No clock, no script."""

from __future__ import annotations

from pathlib import Path

from ntrm.core.io import write_text
from ntrm.core.labels import LabelSchema
from ntrm.report.page import Markup
from ntrm.report.safe_palette import safe_palette
from ntrm.report.slide_documents import Piece, Slide, read_slide
from ntrm.report.slide_page import css_colours, page, paragraph, section
from ntrm.report.slide_picture import SlidePictures, read_pictures, stage
from ntrm.report.slide_sections import (
    headline,
    measurements,
    network_relations,
    provenance,
    quality,
    relations,
    tissue_table,
)

REPORT = "report.html"
VIEWS = {"own": "Dataset colours", "safe": "Colour-blind safe", "bare": "Slide alone"}
"""Ways to look at the picture."""


def write_slide_report(folder: Path) -> Path:
    """Write ``folder/report.html`` from the files of a finished slide; the same files give the same bytes."""
    slide = read_slide(folder)
    pictures = read_pictures(folder, slide)
    path = folder / REPORT
    write_text(path, _page(slide, pictures))
    return path


def _page(slide: Slide, pictures: SlidePictures) -> str:
    schema = pictures.schema
    cancers = frozenset(cancer.name for cancer in slide.cancers)
    parts = [headline(slide, schema), _tissues(slide, pictures), measurements(slide)]
    if len(slide.pieces) > 1:
        parts += [_piece(piece, schema, cancers) for piece in slide.pieces]
    else:
        parts += [section("Relations", *relations(piece, schema, cancers)) for piece in slide.pieces]
    if slide.network is not None:
        parts.append(network_relations(slide.network, schema))
    parts += [quality(slide), provenance(slide)]
    return page(f"{slide.slide_id} – tissue report", parts, style=_colours(pictures), before=_picks(schema))


def _tissues(slide: Slide, pictures: SlidePictures) -> Markup:
    switch = "".join(f'<label for="{name}">{VIEWS[name]}</label>' for name in _views(pictures.schema))
    listed = tissue_table(slide.areas_mm2, slide.fractions, pictures.schema, slide.confidence)
    key = paragraph("Swatches: the colour, and how it looks over the slide.", "faint small")
    return section(
        "Tissues",
        Markup(f'<div class="switch">{switch}</div>'),
        Markup(f'<div class="look">{stage(slide, pictures).text}<div>{listed.text}{key.text}</div></div>'),
    )


def _piece(piece: Piece, schema: LabelSchema, cancers: frozenset[str]) -> Markup:
    """The parts that every piece has of its own, where there are several."""
    known = {node.name: node.confidence for node in piece.nodes}
    edge = [paragraph("This piece is cut by the edge of the scan.", "faint")] if piece.touches_edge else []
    listed = tissue_table(piece.areas_mm2, piece.fractions, schema, known.get)
    return section(f"Piece {piece.number}", *edge, *relations(piece, schema, cancers), listed, kind="piece")


def _colours(pictures: SlidePictures) -> str:
    """Both palettes, pure and as seen over the slide, as properties that the switch exchanges."""
    own = [tissue.rgb for tissue in pictures.schema.tissues]
    style = f":root {{ {css_colours(own, 'c')}{css_colours(pictures.as_seen(own), 'm')} }}"
    safe = safe_palette(pictures.schema)
    if safe is None:
        return style
    return f"{style} #safe:checked ~ main {{ {css_colours(safe, 'c')}{css_colours(pictures.as_seen(safe), 'm')} }}"


def _views(schema: LabelSchema) -> list[str]:
    return [name for name in VIEWS if name != "safe" or safe_palette(schema) is not None]


def _picks(schema: LabelSchema) -> str:
    """What switches the colours: without a script, buttons must stand before what they change."""
    return "".join(
        f'<input class="pick" type="radio" name="view" id="{name}" aria-label="{VIEWS[name]}"'
        f"{' checked' if name == 'own' else ''}>"
        for name in _views(schema)
    )
