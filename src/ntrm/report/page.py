"""Self-contained HTML pages: text escaped, pictures embedded, nothing fetched from anywhere."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ntrm.core.io import write_text
from ntrm.version import __version__

NOTICE = "Research use only. Not a medical device; not for diagnosis."

STYLE = """
:root { color-scheme: light dark; --ink: #1d1d22; --paper: #fff; --rule: #d9d9e0; --soft: #f5f5f8; --accent: #8a0f63; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8ee; --paper: #17171b; --rule: #3a3a44; --soft: #212128; --accent: #ff9fd6; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.2rem 4rem; max-width: 72rem; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.7rem; margin: 0 0 .3rem; } h2 { font-size: 1.2rem; margin: 2.4rem 0 .6rem; color: var(--accent); }
p.lead { margin: 0 0 1rem; opacity: .85; } figure { margin: 1rem 0; }
figcaption { font-size: .9rem; opacity: .8; }
img { max-width: 100%; height: auto; border: 1px solid var(--rule); border-radius: 6px; background: #fff; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .92rem; }
th, td { padding: .3rem .8rem .3rem 0; text-align: left; border-bottom: 1px solid var(--rule); white-space: nowrap; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
.swatch { display: inline-block; width: .9em; height: .9em; margin-right: .45em; border: 1px solid #8888;
  vertical-align: -.08em; }
footer { margin-top: 3rem; font-size: .85rem; opacity: .75; } code { background: var(--soft); padding: .1em .35em;
  border-radius: 4px; }
@media print { body { max-width: none; } h2 { break-after: avoid; } figure, table { break-inside: avoid; } }
"""


@dataclass(frozen=True)
class Markup:
    """HTML that is already safe; every other string is escaped when it enters a page."""

    text: str


def escape(value: object) -> str:
    """Text as HTML.

    >>> escape("<b>"), escape(Markup("<b>"))
    ('&lt;b&gt;', '<b>')
    """
    return value.text if isinstance(value, Markup) else html.escape(str(value))


def swatch(rgb: tuple[int, int, int], text: str) -> Markup:
    """A coloured square and a text."""
    red, green, blue = (int(channel) for channel in rgb)
    return Markup(f'<span class="swatch" style="background:rgb({red},{green},{blue})"></span>{html.escape(text)}')


def picture(path: Path, caption: str) -> Markup:
    """A PNG file, embedded."""
    data = base64.b64encode(path.read_bytes()).decode()
    words = html.escape(caption)
    return Markup(
        f'<figure><img src="data:image/png;base64,{data}" alt="{words}"><figcaption>{words}</figcaption></figure>'
    )


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> Markup:
    """A table; numbers stand to the right."""

    def cell(value: object, tag: str, *, number: bool) -> str:
        kind = ' class="number"' if number else ""
        return f"<{tag}{kind}>{escape(value)}</{tag}>"

    body = [list(row) for row in rows]
    numeric = [all(_is_number(row[k]) for row in body) if body else False for k in range(len(header))]
    lines = [[cell(value, "td", number=numeric[k]) for k, value in enumerate(row)] for row in body]
    head = "".join(cell(value, "th", number=numeric[k]) for k, value in enumerate(header))
    inner = "".join(f"<tr>{''.join(line)}</tr>" for line in lines)
    return Markup(f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{inner}</tbody></table></div>')


def _is_number(value: object) -> bool:
    if isinstance(value, Markup):
        return False
    try:
        float(str(value).rstrip("%").strip() or "nan")
    except ValueError:
        return str(value) == "–"
    return True


def paragraph(text: object) -> Markup:
    """A paragraph."""
    return Markup(f"<p>{escape(text)}</p>")


def section(title: str, *parts: Markup) -> Markup:
    """A heading and what follows it."""
    return Markup(f"<section><h2>{html.escape(title)}</h2>{''.join(part.text for part in parts)}</section>")


def write_page(path: Path, title: str, lead: str, sections: Iterable[Markup]) -> None:
    """Write one HTML file that needs nothing beside it."""
    body = "".join(part.text for part in sections)
    write_text(
        path,
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head><body>"
        f'<h1>{html.escape(title)}</h1><p class="lead">{html.escape(lead)}</p>{body}'
        f"<footer>ntrm {__version__} · {NOTICE}</footer></body></html>\n",
    )
