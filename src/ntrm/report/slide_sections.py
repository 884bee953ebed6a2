"""The parts of a slide's report, from what its files say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from ntrm.core.labels import CANCERS, LabelSchema
from ntrm.report.formatting import NONE, area_text, confidence_text, share_text, value_text
from ntrm.report.page import Markup
from ntrm.report.relation_svg import LEAST_SHOWN, network_svg, strongest, tissue_graph_svg
from ntrm.report.slide_documents import Cancer, Measure, Network, Piece, Slide
from ntrm.report.slide_page import paragraph, section, swatch, table, track

MEASURES = {
    "deep_clearance": "Deep clearance",
    "lateral_clearance": "Lateral clearance",
    "invasion_depth": "Depth of invasion",
    "orientation": "Orientation",
}
FAULTS = {
    "not_he": "Stain other than H&E",
    "out_of_focus": "Out of focus",
    "folds": "Folds",
    "pen": "Pen marks",
    "drawn": "Few flat colours, as of a mask",
}
INTERFACES, RELATIONS = 12, 8
"""Rows of the tables of boundaries and of the network's relations; the files have all."""


def headline(slide: Slide, schema: LabelSchema) -> Markup:
    """Name, cancers and the main figures."""
    present = [cancer for cancer in slide.cancers if cancer.present]
    cards = "".join(
        f'<li style="--c:var(--c{schema.index(cancer.name)})">'
        f"<strong>{escape(_titled(cancer.name, schema))}</strong>confidence {confidence_text(cancer.confidence)} · "
        f"{area_text(cancer.area_mm2)} mm² in {_regions_that_count(cancer, slide)}</li>"
        for cancer in present
    )
    found = f'<ul class="findings">{cards}</ul>' if cards else _none_found(slide)
    absent = ", ".join(_absent(cancer, slide.areas_mm2) for cancer in slide.cancers if not cancer.present)
    note = f'<p class="faint small">Not found: {escape(absent)}.</p>' if absent else ""
    warned = "".join(f"<li>{escape(text)}</li>" for text in slide.warnings)
    warnings = f'<ul class="warnings" aria-label="Warnings">{warned}</ul>' if warned else ""
    return Markup(f"<h1>{escape(slide.slide_id)}</h1>{found}{note}{warnings}{_figures(slide)}")


def _none_found(slide: Slide) -> str:
    if any(name in CANCERS for name in slide.classes):
        return "<p><strong>No cancer was found.</strong></p>"
    return f"<p>The model has no class called {', '.join(CANCERS[:-1])} or {CANCERS[-1]}: no cancer was looked for.</p>"


def _regions_that_count(cancer: Cancer, slide: Slide) -> str:
    """How many; where the graph has more, the others are specks, which the finding leaves out."""
    every = sum(node.regions for piece in slide.pieces for node in piece.nodes if node.name == cancer.name)
    return _count(cancer.regions, "region") + (", specks aside" if every > cancer.regions else "")


def _absent(cancer: Cancer, areas: Mapping[str, float]) -> str:
    """A cancer that was not found, and that a few pixels in its colour are no contradiction."""
    area = areas.get(cancer.name, 0.0)
    specks = f", {area_text(area)} mm² too little or too unsure to count" if area > 0 else ""
    return f"{cancer.name} (confidence of presence {confidence_text(cancer.confidence)}{specks})"


def _figures(slide: Slide) -> str:
    figures = [("Tissue", f"{area_text(slide.tissue_area_mm2)} mm²", ""), ("Pieces", str(len(slide.pieces)), "")]
    choices: dict[str, tuple[str, Callable[[Sequence[float]], float]]] = {
        "deep_clearance": ("least", min),
        "lateral_clearance": ("least", min),
        "invasion_depth": ("greatest", max),
    }
    for key, (word, choose) in choices.items():
        every = [measure for piece in slide.pieces for measure in piece.measures if measure.key == key]
        values = [measure.value for measure in every if measure.value is not None]
        if values:
            several = f"{word} of {len(values)} pieces" if len(values) > 1 else ""
            figures.append((MEASURES[key], value_text(choose(values), "mm"), several))
        else:
            reasons = "; ".join(dict.fromkeys(measure.reason for measure in every)) or "no piece of tissue"
            figures.append((MEASURES[key], "not assessed", reasons))
    cells = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}{f'<small>{escape(more)}</small>' if more else ''}</dd></div>"
        for name, value, more in figures
    )
    return f'<dl class="figures">{cells}</dl>'


def tissue_table(
    areas: Mapping[str, float],
    fractions: Mapping[str, float | None],
    schema: LabelSchema,
    confidence: Callable[[str], float | None],
) -> Markup:
    """Tissues that are there, the largest first: the legend of the picture at the same time."""
    order = sorted((name for name in fractions if areas.get(name, 0) > 0), key=lambda name: -areas[name])
    header = [("Tissue", ""), ("mm²", "n"), ("Share", "n"), ("", "w"), ("Confidence", "n")]
    rows = [
        (
            Markup(f"{swatch(schema.index(name))}{_named(name, schema)}"),
            area_text(areas[name]),
            share_text(fractions[name]),
            Markup(track(schema.index(name), fractions[name])),
            confidence_text(confidence(name)),
        )
        for name in order
    ]
    if not rows:
        return paragraph("No tissue was found.")
    absent = [name for name in fractions if name not in order]
    note = paragraph(f"Not found: {', '.join(absent)}.", "faint small") if absent else Markup("")
    return Markup(f"{table(header, rows).text}{note.text}")


def measurements(slide: Slide) -> Markup:
    """A row for each piece: numbers with their units, or why there are none."""
    header = [("Piece", ""), ("Tissue mm²", "n"), ("Cancers", ""), *((name, "") for name in MEASURES.values())]
    rows = [
        (
            str(piece.number),
            area_text(piece.tissue_area_mm2),
            _present(piece),
            *(_measured(piece, key) for key in MEASURES),
        )
        for piece in slide.pieces
    ]
    if not rows:
        return section("Measurements", paragraph("There is no piece of tissue to measure."))
    note = paragraph(
        "Clearance is the least distance from tumour to the cut margin, depth the greatest from the skin surface down. "
        "Orientation is where the skin surface faces, clockwise from the top of the picture.",
        "faint small",
    )
    return section("Measurements", table(header, rows), note)


def _present(piece: Piece) -> str:
    found = [f"{each.name} ({confidence_text(each.confidence)})" for each in piece.cancers if each.present]
    return ", ".join(found) or "none"


def _measured(piece: Piece, key: str) -> Markup:
    found: Measure | None = next((measure for measure in piece.measures if measure.key == key), None)
    if found is None:
        return Markup(NONE)
    if found.value is None:
        return Markup(f'not assessed<span class="why">{escape(found.reason)}</span>')
    return Markup(escape(value_text(found.value, found.unit)))


def relations(piece: Piece, schema: LabelSchema, cancers: frozenset[str]) -> list[Markup]:
    """Sentences, drawing and table of who borders on whom."""
    drawing = tissue_graph_svg(piece.nodes, piece.edges, schema.names, cancers)
    longest = sorted(piece.edges, key=lambda edge: -edge.boundary_mm)
    header = [("Boundary", ""), ("mm", "n"), ("of first", "n"), ("of second", "n"), ("contacts", "n")]
    rows = [
        (
            f"{edge.one} – {edge.other}",
            f"{edge.boundary_mm:.2f}",
            share_text(edge.share_of_one),
            share_text(edge.share_of_other),
            str(edge.contacts),
        )
        for edge in longest[:INTERFACES]
    ]
    more = len(longest) - len(rows)
    rest = paragraph(f"{more} shorter ones are in graph.json.", "faint small") if more > 0 else Markup("")
    key = paragraph(
        "Size of a circle: area. Width of a line: length of the common boundary; lines of cancers in colour. "
        "“outside” is glass or the edge of the scan.",
        "faint small",
    )
    words = [paragraph(text) for text in piece.sentences]
    listed = table(header, rows, kind="tight").text if rows else paragraph("No two tissues touch.").text
    pair = Markup(f'<div class="pair"><div>{drawing.text}{key.text}</div><div>{listed}{rest.text}</div></div>')
    return [*words, pair]


def network_relations(network: Network, schema: LabelSchema) -> Markup:
    """What the network used, said to be just that."""
    rows = [
        (f"{one} → {other}", f"{attention:.3f}", f"{weight:.3f}")
        for one, other, attention, weight in strongest(network, RELATIONS)
    ]
    title = "What the network used"
    said = paragraph(
        f"Mean over {_count(network.windows, 'window')} of what the network let each tissue (→ receiver) take from "
        f"others (sender →). This is {network.note or 'what the network used, not biology'}."
    )
    if not rows:
        return section(title, said, paragraph("No relation between two tissues was used."))
    header = [("Relation", ""), ("attention", "n"), ("edge weight", "n")]
    key = paragraph(f"Width: attention; those under {LEAST_SHOWN:.0%} of the strongest are not drawn.", "faint small")
    listed = table(header, rows, kind="tight")
    pair = f"<div>{network_svg(network, schema.names).text}{key.text}</div><div>{listed.text}</div>"
    return section(title, said, Markup(f'<div class="pair">{pair}</div>'))


def quality(slide: Slide) -> Markup:
    """Scores of the slide itself."""
    rows = [
        (
            FAULTS.get(key, key.replace("_", " ")),
            Markup("<strong>warning</strong>") if flag else "no warning",
            f"{slide.quality.get(f'{key}_score', 0.0):.3f}",
        )
        for key, flag in slide.quality.items()
        if isinstance(flag, bool)
    ]
    said = [paragraph(text) for text in slide.warnings] or [paragraph("No warnings.")]
    header = [("Fault", ""), ("", ""), ("score, 0 to 1", "n")]
    return section("Quality of the slide", *said, table(header, rows))


def provenance(slide: Slide) -> Markup:
    """Model, program, options and geometry."""
    model, grid, program = (slide.about[key] for key in ("model", "grid", "program"))
    scan = grid.get("slide") or {}
    rows = [
        ("Model", f"{model.get('name') or model.get('arch')}, version {model.get('version') or NONE}"),
        ("Weights (SHA-256)", Markup(f"<code>{escape(str(model.get('sha256') or NONE))}</code>")),
        ("Network", f"{model.get('arch')}, windows of {model.get('window')} px at {model.get('mpp')} µm/px"),
        ("Temperature", str(model.get("temperature") or "not calibrated")),
        ("Program", f"{program.get('name')} {program.get('version')}"),
        ("Options", Markup(_options(slide.about["options"]))),
        ("Slide", _scan(scan, grid)),
        ("Mask", f"{slide.shape[1]} × {slide.shape[0]} px, {_by(slide.mpp)} µm/px"),
        ("Mask to slide pixels", "x → {0:.9g} x + {2:.9g}, y → {1:.9g} y + {3:.9g}".format(*grid["to_level0"])),
    ]
    return section("Provenance", table([("", ""), ("", "")], rows, kind="origin"))


def _scan(scan: Mapping[str, Any], grid: Mapping[str, Any]) -> str:
    size = f"{scan.get('width', NONE)} × {scan.get('height', NONE)} px"
    origin = "as it was given" if grid["slide_mpp_from"] == "given" else f"from {grid['slide_mpp_from']}"
    return f"{size}, {_by(grid['slide_mpp'])} µm/px ({origin}), read with {scan.get('reader', NONE)}"


def _options(options: Mapping[str, Any]) -> str:
    return " ".join(f"<code>{escape(f'{key}={_plain(value)}')}</code>" for key, value in options.items())


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def _by(values: Sequence[float]) -> str:
    """Two numbers that are mostly the same.

    >>> _by([6.7, 6.7]), _by([0.5, 0.25])
    ('6.7', '0.5 × 0.25')
    """
    texts = [f"{value:.9g}" for value in values]
    return texts[0] if len(set(texts)) == 1 else " × ".join(texts)


def _titled(name: str, schema: LabelSchema) -> str:
    title = schema[name].title
    return name if title == name else f"{title[:1].upper()}{title[1:]} ({name})"


def _named(name: str, schema: LabelSchema) -> str:
    title = schema[name].title
    return escape(name) if title == name else f'{escape(name)} <span class="faint">{escape(title)}</span>'


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
