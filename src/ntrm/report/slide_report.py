"""``report.html``: everything about one slide on one page, from the files of its folder alone. No clock, no script."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

from ntrm.core.labels import CANCERS, LabelSchema, safe_palette
from ntrm.core.wording import NO_MODEL, area_text
from ntrm.report.graph_layout import graph_drawing
from ntrm.report.html import NONE, css_colours, value_text, write_page
from ntrm.report.slide_picture import SlidePictures, read_pictures, stage, stored_jpeg
from ntrm.results.cohort import MEASURES as LENGTHS
from ntrm.results.documents import (
    IN_CRUMBS,
    NOTHING_TO_MEASURE,
    Network,
    Node,
    PieceGraph,
    PieceSummary,
    Slide,
    read_slide,
    tissues_in,
)
from ntrm.results.familiarity import ASPECTS, NOT_ASSESSED
from ntrm.results.folder import MB, SlideFolder
from ntrm.results.paths import FAMILIARITY_MAP, REPORT

VIEWS = {"own": "Dataset colours", "safe": "Colour-blind safe", "bare": "Slide alone"}  # Ways to look at the picture
MEASURES = {**LENGTHS, "orientation": "Orientation"}
FAULTS = {
    "not_he": "Stain other than H&E",
    "out_of_focus": "Out of focus",
    "folds": "Folds",
    "pen": "Pen marks",
    "drawn": "Few flat colours, as of a mask",
}
INTERFACES, RELATIONS = 12, 12  # Rows of the tables of boundaries and of the network's relations; the files have all

Content = dict[str, Any]  # What a template shows


def write_slide_report(folder: Path) -> Path:
    """Write ``folder/report.html`` from the files of a finished slide; the same files give the same bytes."""
    slide, path = read_slide(folder), folder / REPORT
    content = _content(slide, read_pictures(folder, slide))
    where = stored_jpeg(SlideFolder(folder), FAMILIARITY_MAP, 64 * MB)
    write_page(path, "slide_report.html", familiarity=_familiarity(slide), where=where, **content)
    return path


def _familiarity(slide: Slide) -> Content:
    """The verdict in words and numbers."""
    whole = slide.familiarities.slide
    pieces = [(f"Piece {piece.number}", piece.familiarity) for piece in slide.pieces]
    unfamiliar = [(name, piece) for name, piece in pieces if not piece.assessed]
    unlike = unfamiliar if whole.assessed else [("This slide", whole)]
    rows = []
    for name, of in (("Slide", whole), *(pieces if len(pieces) > 1 else [])):
        p_values = (of.p_value, *(of.aspects.get(aspect) for aspect in ASPECTS))
        rows.append((name, of.verdict, *(NONE if p is None else f"{p:.2g}" for p in p_values)))
    return {
        "slide": whole,
        "unlike": [(name, rarity(of.p_value), of.reasons) for name, of in unlike],
        "pieces_only": whole.assessed and bool(unfamiliar),
        "rows": rows,
        "columns": [(f"p of {name}", "n") for name in ASPECTS],
    }


def rarity(p_value: float | None) -> str:
    """What a p-value says, in words."""
    share = p_value or 0.0
    number = round(1000 * share)
    how_many = {0: "fewer than 1 looks", 1: "about 1 looks"}.get(number, f"about {number} look")
    return f"of 1,000 sections like those it was trained on, {how_many} as unlike as this (p = {share:.2g})"


def _content(slide: Slide, pictures: SlidePictures) -> Content:
    schema, network, cancers = pictures.schema, slide.network, slide.cancers
    not_assessed = {name for name, cancer in cancers.items() if cancer.present is None}
    # Both palettes, pure and as seen over the slide, as properties that the switch exchanges; without any sign that
    # HTML would escape.
    style, safe = "", safe_palette(schema)
    for where, palette in ((":root", [tissue.rgb for tissue in schema.tissues]), ("#safe:checked ~ main", safe)):
        if palette is not None:
            style += f"{where} {{ {css_colours(palette, 'c')}{css_colours(pictures.as_seen(palette), 'm')} }} "
    pieces = [*zip(slide.pieces, slide.graphs, strict=True)]
    found = tissues_in([graph for piece, graph in pieces if slide.familiarities.ruling(piece.number).assessed])
    present = []
    for name, cancer in cancers.items():
        if cancer.present:
            tissue = schema[name]
            title = f"{tissue.title[:1].upper()}{tissue.title[1:]} ({name})" if tissue.explanation else name
            # Where the graph has more regions, the others are specks, which do not count.
            specks = name in found and found[name].regions > cancer.regions
            present.append({"cancer": cancer, "index": tissue.index, "title": title, "specks": specks})
    return {
        "slide": slide,
        "colours": style.strip(),
        "views": {key: label for key, label in VIEWS.items() if key != "safe" or safe is not None},
        "present": present,
        "absent": [(name, of, slide.areas_mm2.get(name, 0.0)) for name, of in cancers.items() if of.present is False],
        "in_crumbs": [(name, cancer) for name, cancer in cancers.items() if cancer.reason == IN_CRUMBS],
        "cancers": CANCERS,
        "looked_for": any(name in CANCERS for name in slide.classes),
        "figures": _key_figures(slide),
        "stage": stage(slide, pictures),
        "whole": _tissues(slide, schema, tissues_in(slide.graphs), not_assessed),
        "measures": [(name, "") for name in MEASURES.values()],
        "pieces": [_piece(*each, slide, schema) for each in pieces],
        "network": network,
        "relations_used": None if network is None else _relations_used(network),
        "quality": [
            (FAULTS.get(key, key.replace("_", " ")), flag, slide.quality.get(f"{key}_score", 0.0))
            for key, flag in slide.quality.items()
            if isinstance(flag, bool)
        ],
        "origin": _origin(slide),
    }


def _key_figures(slide: Slide) -> list[tuple[str, str, str]]:
    figures = [("Tissue", f"{area_text(slide.tissue_area_mm2)} mm²", ""), ("Pieces", str(len(slide.pieces)), "")]
    for key, name in LENGTHS.items():
        word, choose = ("greatest", max) if key == "invasion_depth" else ("least", min)
        measures = {piece.number: piece.measurements[key] for piece in slide.pieces if key in piece.measurements}
        values = [measure.value for measure in measures.values() if measure.value is not None]
        if not values:
            reasons = "; ".join(dict.fromkeys(measure.reason for measure in measures.values())) or "no piece of tissue"
            figures.append((name, NOT_ASSESSED, reasons))
            continue
        said = [f"{word} of {len(values)} pieces"] if len(values) > 1 else []
        # Pieces that were not assessed although there may be something to measure.
        left = {number: measure.reason for number, measure in measures.items() if measure.value is None}
        for reason in dict.fromkeys(reason for reason in left.values() if reason not in NOTHING_TO_MEASURE):
            numbers = [number for number, why in left.items() if why == reason]
            where = f"piece {numbers[0]}" if len(numbers) == 1 else f"{len(numbers)} pieces"
            said.append(f"{NOT_ASSESSED} in {where}: {reason}")
        figures.append((name, value_text(choose(values), "mm"), "; ".join(said)))
    return figures


def _tissues(
    of: Slide | PieceSummary, schema: LabelSchema, nodes: Mapping[str, Node], not_assessed: Collection[str]
) -> Content:
    """Rows of the table of tissues; cancers that were ``not_assessed`` are neither found nor missing."""
    areas, fractions = of.areas_mm2, of.tissue_fractions
    order = sorted((name for name in fractions if areas.get(name, 0) > 0), key=lambda name: -areas[name])
    rows = [
        {
            "tissue": schema[name],
            "area": areas[name],
            "share": fractions[name],
            "confidence": nodes[name].confidence if name in nodes else None,
            "by_person": nodes[name].by_person if name in nodes else 0.0,
            "assessed": name not in not_assessed,
        }
        for name in order
    ]
    return {"rows": rows, "absent": [name for name in fractions if name not in order and name not in not_assessed]}


def _piece(piece: PieceSummary, graph: PieceGraph, slide: Slide, schema: LabelSchema) -> Content:
    longest = sorted(graph.edges, key=lambda edge: -edge.boundary_mm)
    nodes, assessed = tissues_in([graph]), slide.familiarities.ruling(piece.number).assessed
    not_assessed = {cancer.name for cancer in piece.cancers if cancer.present is None}
    cancers = {*slide.cancers} if assessed else set()  # Their lines stand out where they are findings.
    return {
        "piece": piece,
        "text": graph.text,
        "measures": [piece.measurements.get(key) for key in MEASURES],
        "assessed": assessed,
        "graph": graph_drawing([*nodes.values()], graph.edges, schema.names, cancers),
        "boundaries": longest[:INTERFACES],
        "shorter": max(len(longest) - INTERFACES, 0),
        "tissues": _tissues(piece, schema, nodes, not_assessed),
    }


def _relations_used(network: Network) -> Content:
    """Head and rows of the table, and what the page says about what is missing from it."""
    # More layers than columns that a page has room for: the mean alone is told.
    layers = len(network.attention) if 1 < len(network.attention) <= 6 else 0
    weighted, attention = network.edge_weight is not None, network.mean_attention
    where = {(edge.source, edge.target): edge.windows[0] for edge in network.strongest_windows if edge.windows}
    columns = ["attention", *(f"layer {number}" for number in range(1, layers + 1)), "windows", "most, and where"]
    pairs = [pair for pair in permutations(range(len(network.names)), 2) if attention[pair[0]][pair[1]] > 0]
    rows = []
    for i, j in sorted(pairs, key=lambda pair: -attention[pair[0]][pair[1]])[:RELATIONS]:
        sender, receiver = network.names[i], network.names[j]
        values = [f"{matrix[i][j]:.3f}" for matrix in (attention, *network.attention[:layers])]
        most = NONE
        if window := where.get((sender, receiver)):
            middle = window.top + window.height // 2, window.left + window.width // 2
            most = f"{window.attention:.3f} at {middle}"
        weights = [] if network.edge_weight is None else [f"{network.edge_weight[i][j]:.3f}"]
        rows.append((f"{sender} → {receiver}", *values, f"{network.edge_windows[i][j]:,}", most, *weights))
    unused = {"Attention": not network.attention, "Edge weights": not weighted}
    return {
        "columns": [("Relation", ""), *((name, "n") for name in columns + ["edge weight"] * weighted)],
        "rows": rows,
        "notes": [f"{what}: not used by this model." for what, missing in unused.items() if missing],
    }


def _origin(slide: Slide) -> dict[str, str | list[str]]:
    """Model, program, options and geometry; what is a list is shown as code."""
    model, grid, program, norm = slide.model, slide.grid, slide.program, slide.stain_norm
    words = {True: "yes", False: "no", None: "none"}
    options = {key: words[value] if isinstance(value, bool | None) else value for key, value in slide.options.items()}
    read = "as it was given" if grid.slide_mpp_from == "given" else f"from {grid.slide_mpp_from}"
    size = f"{grid.slide.get('width', NONE)} × {grid.slide.get('height', NONE)} px"
    network = (
        {}
        if model is None
        else {
            "Network": f"{model.get('arch')}, windows of {model.get('window')} px at {model.get('mpp')} µm/px",
            "Temperature": str(model.get("temperature") or "not calibrated"),
        }
    )
    rows: dict[str, str | list[str]] = {
        **model_origin(model),
        **network,
        "Program": f"{program.get('name')} {program.get('version')}",
        "Options": [f"{key}={value}" for key, value in options.items()],
        "Slide": f"{size}, {_by(grid.slide_mpp)} µm/px ({read}), read with {grid.slide.get('reader', NONE)}",
        "Mask": f"{grid.width} × {grid.height} px, {_by(grid.mpp)} µm/px",
        "Mask to slide pixels": "x → {0:.9g} x + {2:.9g}, y → {1:.9g} y + {3:.9g}".format(*grid.to_level0),
    }
    if norm is not None:
        done = f"brought to those of the training sections for the network ({norm.method}); pictures show the slide"
        rows["Stains"] = f"left as they were: {norm.reason}" if norm.matrix is None else done
    return rows


def model_origin(model: Mapping[str, Any] | None) -> dict[str, str | list[str]]:
    """Which network it was."""
    if model is None:
        return {"Model": NO_MODEL}
    return {
        "Model": f"{model.get('name') or model.get('arch')}, version {model.get('version') or NONE}",
        "Weights (SHA-256)": [str(model.get("sha256") or NONE)],
    }


def _by(values: Sequence[float]) -> str:
    """Two numbers as one text; a single number where they are equal, as is usual.

    >>> _by([6.7, 6.7]), _by([0.5, 0.25])
    ('6.7', '0.5 × 0.25')
    """
    return " × ".join(dict.fromkeys(f"{value:.9g}" for value in values))
