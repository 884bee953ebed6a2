"""``index.html``: many slides on one page, from the tables and the slides' thumbnails. No clock, no script."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from urllib.parse import quote

from ntrm.core.errors import NtrmError
from ntrm.core.io import write_text
from ntrm.core.labels import RGB
from ntrm.report.cohort import MEASURES, Cohort, CohortSlide, read_cohort
from ntrm.report.cohort_plots import borders, composition, histogram
from ntrm.report.formatting import NONE, area_text, confidence_text
from ntrm.report.page import Markup
from ntrm.report.safe_palette import SAFE
from ntrm.report.slide_page import page, paragraph, section, table
from ntrm.report.slide_picture import class_colours, data_uri

OVERVIEW = "index.html"
REPORT, THUMBNAIL = "report.html", "thumbnail.jpg"
MOST_BYTES = 6000
"""Of a thumbnail on the page; larger ones are left out."""

STYLE = """
main { max-width: 84rem; }
.thumb { display: block; max-width: 7rem; max-height: 4.5rem; border: 1px solid var(--rule); }
.mix { display: block; min-width: 9rem; height: .8rem; margin-top: .3rem; border: 1px solid #7778; }
.key { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; margin: .6rem 0; padding: 0; list-style: none;
  font-size: .88rem; } .key .sw { width: .95em; }
svg.plot { display: block; width: 100%; height: auto; font-size: 13px; }
svg .grid { stroke: var(--rule); } svg .column { fill: var(--accent); fill-opacity: .8; }
.slides td, .slides th { white-space: normal; } .slides th[scope=row] { overflow-wrap: anywhere; min-width: 7rem; }
@media print { @page { size: A4 landscape; } .pair { grid-template-columns: 1fr 1fr; } }
"""


def write_overview(out: Path) -> Path:
    """Write ``out/index.html`` from ``out``'s tables; the same tables and thumbnails give the same bytes."""
    cohort = read_cohort(out)
    body = [_head(cohort), _failures(cohort), *_plots(cohort), _slides(cohort, out), _provenance(cohort)]
    text = page("Overview of slides", body, style=STYLE + _colours(cohort, out))
    said = paragraph(f"This page: {len(text.encode()) / 1e6:.2g} MB.", "faint small").text
    path = out / OVERVIEW
    write_text(path, text.replace("</main>", f"{said}</main>"))
    return path


def _head(cohort: Cohort) -> Markup:
    done, failed = len(cohort.done), len(cohort.failed)
    with_cancer = [
        f"{name} on {sum(name in slide.cancers for slide in cohort.done):,}" for name in cohort.cancers if cohort.done
    ]
    warned = sum(bool(slide.warnings) for slide in cohort.done)
    area = sum(slide.tissue_area_mm2 or 0.0 for slide in cohort.done)
    figures = [
        ("Slides done", f"{done:,}"),
        ("Failed", f"{failed:,}"),
        ("With warnings", f"{warned:,}"),
        ("Tissue", f"{area:,.1f} mm²"),
        ("Pieces", f"{sum(slide.pieces for slide in cohort.done):,}"),
    ]
    cells = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in figures)
    found = f"<p>Cancers found: {escape(', '.join(with_cancer))}.</p>" if with_cancer else ""
    return Markup(f'<h1>Overview of slides</h1><dl class="figures">{cells}</dl>{found}')


def _failures(cohort: Cohort) -> Markup:
    if not cohort.failed:
        return Markup("")
    rows = [(slide.slide_id, slide.reason) for slide in cohort.failed]
    return section("Failed", table([("Slide", ""), ("Reason", "")], rows, kind="slides"))


def _plots(cohort: Cohort) -> list[Markup]:
    slides = [slide for slide in cohort.done if slide.tissue_area_mm2]
    if not slides:
        return []
    drawn, sentence = composition(slides, cohort.tissues, cohort.cancers)
    parts = [section("Tissue composition", _key(cohort), drawn, paragraph(sentence, "faint small"))]
    shares = [slide.tumour_share(cohort.cancers) for slide in slides]
    several = [histogram(shares, "Cancer in tissue", "%")] if cohort.cancers else []
    missing = []
    for key, title in MEASURES.items():
        values = [value for slide in slides if (value := slide.measures[key]) is not None]
        several.append(histogram(values, title, "mm"))
        missing.append(f"{title.lower()} on {len(slides) - len(values):,}")
    cells = "".join(f"<div>{plot.text}</div>" for plot in several)
    note = paragraph(f"Number of slides. Not assessed: {', '.join(missing)}.", "faint small")
    parts.append(section("Distributions", Markup(f'<div class="pair">{cells}</div>'), note))
    if any(sum(by.values()) for by in cohort.neighbours.values()):
        note = paragraph("Shares of the cancers' boundaries with other tissues, all slides together.", "faint small")
        parts.append(section("What cancers border on", borders(cohort.neighbours, cohort.tissues), note))
    return parts


def _key(cohort: Cohort) -> Markup:
    items = "".join(
        f'<li><span class="sw" style="--c:var(--t{at})"></span>{escape(name)}</li>'
        for at, name in enumerate(cohort.tissues)
    )
    return Markup(f'<ul class="key">{items}</ul>')


def _slides(cohort: Cohort, out: Path) -> Markup:
    header = [("Slide", ""), ("", ""), ("Cancers", ""), ("Tissue mm²", "n"), ("Tissues", "")]
    header += [(name, "") for name in MEASURES.values()]
    header += [("Pieces", "n"), ("Confidence", "n"), ("Warnings", "")]
    rows = [_row(slide, cohort, out / slide.slide_id) for slide in cohort.done]
    return section("Slides", table(header, rows, kind="slides")) if rows else Markup("")


def _row(slide: CohortSlide, cohort: Cohort, folder: Path) -> list[object]:
    name = escape(slide.slide_id)
    linked = (folder / REPORT).is_file()
    link = f'<a href="{quote(slide.slide_id, safe="")}/{REPORT}">{name}</a>' if linked else name
    found = ", ".join(f"{cancer} ({confidence_text(value)})" for cancer, value in slide.cancers.items())
    return [
        Markup(link),
        Markup(_thumbnail(folder)),
        found or "none",
        NONE if slide.tissue_area_mm2 is None else area_text(slide.tissue_area_mm2),
        Markup(_mix(slide, cohort)),
        *(_measured(slide, key) for key in MEASURES),
        f"{slide.pieces:,}",
        confidence_text(slide.confidence),
        slide.warnings,
    ]


def _measured(slide: CohortSlide, key: str) -> Markup:
    value = slide.measures[key]
    if value is not None:
        return Markup(f"{value:.2f} mm")
    return Markup(f'{NONE}<span class="why">{escape(slide.reasons.get(key, ""))}</span>')


def _mix(slide: CohortSlide, cohort: Cohort) -> str:
    """All tissues of a slide in one bar."""
    stops, at = [], 0.0
    for index, name in enumerate(cohort.tissues):
        share = slide.fractions.get(name, 0.0)
        if share > 0:
            stops.append(f"var(--t{index}) {100 * at:.1f}% {100 * (at + share):.1f}%")
            at += share
    return f'<span class="mix" style="background:linear-gradient(90deg,{",".join(stops)})"></span>' if stops else ""


def _thumbnail(folder: Path) -> str:
    path = folder / THUMBNAIL
    try:
        content = path.read_bytes() if path.stat().st_size <= MOST_BYTES else b""
    except OSError:
        return ""
    known = content.startswith(b"\xff\xd8\xff")
    return f'<img class="thumb" alt="" decoding="async" src="{data_uri(content, "jpeg")}">' if known else ""


def _colours(cohort: Cohort, out: Path) -> str:
    """Colours of the tissues from the first mask that tells them; else those that are easily told apart."""
    palette: Sequence[RGB] = SAFE
    for slide in cohort.done[:20]:
        try:
            palette = class_colours(out / slide.slide_id)
            break
        except NtrmError:
            continue
    places = [cohort.classes.index(name) if name in cohort.classes else 0 for name in cohort.tissues]
    chosen = [palette[place % len(palette)] for place in places]
    return ":root {" + "".join(f"--t{at}:#{r:02x}{g:02x}{b:02x};" for at, (r, g, b) in enumerate(chosen)) + "}"


def _provenance(cohort: Cohort) -> Markup:
    model, program = cohort.about["model"], cohort.about["program"]
    rows = [
        ("Model", f"{model.get('name') or model.get('arch')}, version {model.get('version') or NONE}"),
        ("Weights (SHA-256)", Markup(f"<code>{escape(str(model.get('sha256') or NONE))}</code>")),
        ("µm/px of the masks", str(model.get("mpp"))),
        ("Program", f"{program.get('name')} {program.get('version')}"),
        ("Options", " ".join(f"{key}={value}" for key, value in cohort.about["options"].items())),
    ]
    return section("Provenance", table([("", ""), ("", "")], rows, kind="origin"))
