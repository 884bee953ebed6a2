"""The look of a slide's report and of the overview: one file each, light, dark and on paper, without any script."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from ntrm.core.labels import RGB
from ntrm.report.page import NOTICE, Markup
from ntrm.version import __version__

STYLE = """
:root { color-scheme: light dark; --ink: #1d1d22; --soft-ink: #5c5c68; --paper: #fff; --rule: #dedee6; --soft: #f5f5f9;
  --accent: #8a0f63; --edge: #8c8c9a; --warn: #7a4b00; --warn-paper: #fff4dc; }
@media (prefers-color-scheme: dark) { :root { --ink: #ececf2; --soft-ink: #a6a6b4; --paper: #15151a; --rule: #33333d;
  --soft: #1f1f26; --accent: #ff9fd6; --edge: #8f8f9e; --warn: #ffd58a; --warn-paper: #33280f; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, "Segoe UI", "Helvetica Neue",
  Arial, sans-serif; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
main { margin: 0 auto; max-width: 70rem; padding: 0 1.25rem 3rem; }
.notice { margin: 0; max-width: none; padding: .4rem 1.25rem; background: var(--soft);
  border-bottom: 1px solid var(--rule); text-align: center; font-size: .85rem; color: var(--soft-ink); }
footer.notice { border: 0; border-top: 1px solid var(--rule); }
h1 { margin: 1.6rem 0 .2rem; font-size: 1.9rem; line-height: 1.2; overflow-wrap: anywhere; }
h2 { margin: 2.4rem 0 .7rem; padding-bottom: .25rem; font-size: 1.2rem; border-bottom: 2px solid var(--accent); }
h3 { margin: 1.4rem 0 .4rem; font-size: 1rem; }
p { margin: .4rem 0; max-width: 46rem; } .faint { color: var(--soft-ink); fill: var(--soft-ink); }
.small { font-size: .86rem; } th .faint { font-weight: 400; } a { color: var(--accent); }
.findings { display: flex; flex-wrap: wrap; gap: .6rem; margin: 1rem 0; padding: 0; list-style: none; }
.findings li { flex: 0 1 auto; padding: .55rem .9rem; border: 1px solid var(--rule); border-left: .4rem solid var(--c);
  border-radius: .35rem; } .findings strong { display: block; font-size: 1.05rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .6rem; margin: 1rem 0; }
.figures div { padding: .5rem .8rem; background: var(--soft); border-radius: .35rem; }
.figures dt { font-size: .8rem; color: var(--soft-ink); } .figures dd { margin: 0; font-size: 1.25rem; font-weight: 600;
  font-variant-numeric: tabular-nums; } .figures dd small { display: block; font-size: .78rem; font-weight: 400;
  line-height: 1.3; color: var(--soft-ink); }
.warnings { margin: 1rem 0; padding: .6rem .9rem .6rem 2rem; background: var(--warn-paper); color: var(--warn);
  border-radius: .35rem; }
table { border-collapse: collapse; font-size: .92rem; width: 100%; } .scroll { overflow-x: auto; }
th, td { padding: .32rem .8rem .32rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--rule); }
th { font-weight: 600; font-size: .82rem; color: var(--soft-ink); } tbody th { font-size: inherit; color: inherit; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; } td.w { min-width: 7rem; }
td .why { display: block; font-size: .82rem; color: var(--soft-ink); max-width: 16rem; white-space: normal; }
.sw { display: inline-block; width: 1.7em; height: .9em; margin-right: .5em; vertical-align: -.05em;
  border: 1px solid #7778; background: linear-gradient(90deg, var(--c) 50%, var(--m, var(--c)) 50%); }
.track { display: block; height: .62rem; margin-top: .36rem; background: var(--soft); }
.track span { display: block; height: 100%; background: var(--c); border: 1px solid #7778; }
.look { display: flex; flex-wrap: wrap; gap: 1rem 2rem; align-items: flex-start; }
.look > :last-child { flex: 1 1 21rem; }
.stage { position: relative; margin: 0; flex: 0 1 auto; background: #fff; border: 1px solid var(--rule);
  overflow: hidden; width: min(100%, calc(44rem * var(--w) / var(--h))); aspect-ratio: var(--w) / var(--h); }
.stage > * { position: absolute; inset: 0; width: 100%; height: 100%; }
.tint { display: none; opacity: .45; } .marks { font-family: inherit; }
.marks text { paint-order: stroke; stroke: #fff; stroke-width: .28em; stroke-linejoin: round; }
.marks .said, .marks .number { text-anchor: middle; } .marks .badge, .marks .bar { fill: #1d1d22; stroke: #fff; }
.marks .badge, .marks .bar { stroke-width: 2; } .marks .number { fill: #fff; stroke: none; font-weight: 600; }
.pick { position: absolute; opacity: 0; pointer-events: none; }
.switch { display: flex; flex-wrap: wrap; gap: .4rem; margin: 0 0 .7rem; font-size: .88rem; }
.switch label { padding: .2rem .75rem; border: 1px solid var(--rule); border-radius: 1rem; cursor: pointer; }
#own:checked ~ main .tint.own, #safe:checked ~ main .tint.safe { display: block; }
#own:checked ~ main [for=own], #safe:checked ~ main [for=safe], #bare:checked ~ main [for=bare] {
  background: var(--accent); border-color: var(--accent); color: var(--paper); }
#own:focus-visible ~ main [for=own], #safe:focus-visible ~ main [for=safe], #bare:focus-visible ~ main [for=bare] {
  outline: 3px solid var(--edge); outline-offset: 2px; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); gap: 1rem 2.5rem; }
svg.graph { display: block; width: 100%; max-width: 34rem; height: auto; font-size: 14px; }
svg text { font-family: inherit; } svg.graph text, svg.plot text { fill: var(--ink); }
svg.graph .faint, svg.plot .faint { fill: var(--soft-ink); }
svg .edge { stroke: var(--edge); stroke-opacity: .45; stroke-linecap: round; }
svg .edge.cancer { stroke: var(--accent); stroke-opacity: .75; }
svg .node { stroke: var(--ink); } svg .outside { fill: var(--paper); stroke-dasharray: 3 3; }
svg .arrow path { fill: none; stroke: var(--edge); stroke-opacity: .7; } svg .arrow polygon { fill: var(--edge); }
.tight th { white-space: nowrap; }
.origin th { width: 13rem; white-space: nowrap; } .origin td { overflow-wrap: anywhere; }
.origin code { font-size: .86em; }
@media (max-width: 34rem) { body { font-size: 15px; } h1 { font-size: 1.5rem; } main { padding: 0 .9rem 2rem; }
  th, td { padding-right: .5rem; } .tight th { white-space: nowrap; }
.origin th { width: auto; white-space: normal; } .w { display: none; } }
@page { size: A4; margin: 12mm 13mm; }
@media print {
  :root { color-scheme: light; --ink: #000; --soft-ink: #444; --paper: #fff; --rule: #ccc; --soft: #f2f2f5;
    --accent: #8a0f63; --edge: #777; --warn: #5a3700; --warn-paper: #fff4dc; }
  body { font-size: 9.5pt; line-height: 1.4; } main { max-width: none; padding: 0; } .switch { display: none; }
  h1 { margin-top: .5rem; font-size: 17pt; } h2 { font-size: 12pt; margin: 1.1rem 0 .4rem; }
  h2, h3 { break-after: avoid; } .findings, .figures, .warnings { margin: .5rem 0; }
  .figures { grid-template-columns: repeat(5, 1fr); } .figures dd { font-size: 1.1rem; }
  tr, .stage, svg, .figures, .findings, .warnings, .scroll, .pair, .piece { break-inside: avoid; }
  .scroll:has(.slides) { break-inside: auto; } .scroll { overflow: visible; }
  .stage { width: min(100%, calc(92mm * var(--w) / var(--h))); } .look > :last-child { flex-basis: 75mm; }
  .pair { grid-template-columns: 1fr 1fr; gap: 4mm; } th, td { padding-top: .12rem; padding-bottom: .12rem; }
  td.w { min-width: 14mm; } .w .track { min-width: 12mm; }
}
"""


def css_colours(palette: Sequence[RGB], letter: str) -> str:
    """Colours as properties of the style: ``--c0`` and so on.

    >>> css_colours([(255, 0, 16)], "c")
    '--c0:#ff0010;'
    """
    return "".join(f"--{letter}{at}:#{red:02x}{green:02x}{blue:02x};" for at, (red, green, blue) in enumerate(palette))


def swatch(index: int) -> str:
    """A square in a class's colour: left as it is, right as it looks over the slide."""
    return f'<span class="sw" style="--c:var(--c{index});--m:var(--m{index})"></span>'


def track(index: int, share: float | None) -> str:
    """A bar from 0 to 1 in a class's colour."""
    width = 100 * min(max(share or 0.0, 0.0), 1.0)
    return f'<span class="track"><span style="--c:var(--c{index});width:{width:.2f}%"></span></span>' if width else ""


def table(header: Sequence[tuple[str, str]], rows: Iterable[Sequence[object]], *, kind: str = "") -> Markup:
    """A table; ``header`` has the columns' names and classes (``n`` for numbers); the first cell heads its row."""
    names = "".join(f'<th scope="col" class="{css}">{escape(name)}</th>' for name, css in header)
    head = f"<thead><tr>{names}</tr></thead>" if any(name for name, _ in header) else ""
    body = "".join(f"<tr>{_cells(header, row)}</tr>" for row in rows)
    return Markup(f'<div class="scroll"><table class="{kind}">{head}<tbody>{body}</tbody></table></div>')


def _cells(header: Sequence[tuple[str, str]], row: Sequence[object]) -> str:
    parts = []
    for at, ((_, css), cell) in enumerate(zip(header, row, strict=True)):
        inner = cell.text if isinstance(cell, Markup) else escape(str(cell))
        parts.append(f'<th scope="row">{inner}</th>' if at == 0 else f'<td class="{css}">{inner}</td>')
    return "".join(parts)


def section(title: str, *parts: Markup, kind: str = "") -> Markup:
    """A heading and what follows it."""
    inner = "".join(part.text for part in parts)
    return Markup(f'<section class="{kind}"><h2>{escape(title)}</h2>{inner}</section>')


def paragraph(text: str, kind: str = "") -> Markup:
    """A paragraph."""
    return Markup(f'<p class="{kind}">{escape(text)}</p>')


def page(title: str, body: Iterable[Markup], *, style: str = "", before: str = "") -> str:
    """The whole document; ``before`` stands before the main part, for what switches its style."""
    inner = "".join(part.text for part in body)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>{escape(title)}</title><style>{STYLE}{style}</style></head><body>"
        f'<p class="notice" role="note">{NOTICE}</p>{before}<main>{inner}</main>'
        f'<footer class="notice">{NOTICE} · ntrm {escape(__version__)}</footer></body></html>\n'
    )
