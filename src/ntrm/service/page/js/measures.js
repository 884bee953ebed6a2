// Margins, depth and orientation of the pieces, with their lines on the slide, or the reason why there is none.

import { html } from "../vendor/preact/preact.min.js";
import { length } from "./format.js";
import { maskToSlide } from "./geometry.js";
import { Button, PanelHead, Tick } from "./ui.js";

const NAMES = {
  deep_clearance: "Deep clearance",
  lateral_clearance: "Lateral clearance",
  invasion_depth: "Depth of invasion",
  orientation: "Skin surface",
};
const KINDS = { deep_clearance: "deep", lateral_clearance: "lateral", invasion_depth: "depth" };
const title = (key) => NAMES[key] ?? key.replaceAll("_", " ").replace(/^./, (first) => first.toUpperCase());

function value(measured) {
  if (measured.value === null) return null;
  if (measured.unit === "degrees") return `${Math.round(measured.value)}° clockwise from the top`;
  return length(measured.value);
}

/** Lines of the pieces that are shown, for the drawing. */
export function measureLines(summary, geometry, piece) {
  return summary.pieces
    .filter((entry) => piece === null || entry.number === piece)
    .flatMap((entry) =>
      Object.entries(entry.measurements)
        .filter(([key, measured]) => measured.line_px && measured.value !== null && key in KINDS)
        .map(([key, measured]) => {
          const [from, to] = measured.line_px.map((point) => maskToSlide(geometry, point));
          return { from, to, kind: KINDS[key], label: `${title(key)} ${length(measured.value)}`, key };
        }),
    );
}

/** Degrees that put the skin surface of a piece up, or null. */
export function uprightOf(summary, piece) {
  const entry = summary.pieces.find((other) => other.number === piece) ?? summary.pieces[0];
  const turn = entry?.measurements.orientation?.value;
  return turn === null || turn === undefined ? null : -turn;
}

export function Measures({ view }) {
  const { summary } = view.readings;
  const pieces = summary.pieces.filter((entry) => view.piece === null || entry.number === view.piece);
  return html`<section>
    <${PanelHead} title="Measurements">
      <${Tick} label="Draw lines" checked=${view.lines} onTick=${(lines) => view.set({ lines })} />
    </${PanelHead}>
    <div class="measures">
      ${pieces.map((entry) => html`<${Piece} key=${entry.number} view=${view} summary=${summary} entry=${entry} />`)}
      ${!pieces.length && html`<p class="muted">No piece of tissue was found on this slide.</p>`}
    </div>
  </section>`;
}

function Piece({ view, summary, entry }) {
  const lines = measureLines(summary, view.geometry, entry.number);
  const cancers = entry.cancers.filter((cancer) => cancer.present);
  return html`<article>
    ${summary.pieces.length > 1 && html`<h3>Piece ${entry.number}</h3>`}
    <dl class="facts-list">
      ${Object.entries(entry.measurements).map(
        ([key, measured]) =>
          html`<div key=${key} data-measure=${key}>
            <dt>${KINDS[key] && html`<span class=${`line-key ${KINDS[key]}`} />`}${title(key)}</dt>
            <dd>
              <${Value} measured=${measured} />
              <${ShowButton} view=${view} line=${lines.find((line) => line.key === key)} />
            </dd>
          </div>`,
      )}
    </dl>
    <ul class="small muted" hidden=${!cancers.length}>
      ${cancers.map(({ name, reason }) => html`<li key=${name}>${name}: ${reason}</li>`)}
    </ul>
    <p class="small muted prose">${(entry.text ?? []).slice(0, 2).join(" ")}</p>
  </article>`;
}

function Value({ measured }) {
  const text = value(measured);
  if (text === null) return html`<span class="why">Not assessed: ${measured.reason}</span>`;
  return html`<span class="number">${text}</span>`;
}

function ShowButton({ view, line }) {
  if (!line) return null;
  const show = () => {
    view.set({ lines: true });
    view.stage.fitBox(boxOf(line), 1.5);
  };
  return html`<${Button} kind="small quiet"
    aria-label=${`Show ${title(line.key)} on the slide`}
    onClick=${show}
  >
    Show
  </${Button}>`;
}

function boxOf({ from, to }) {
  const [left, top] = [Math.min(from[0], to[0]), Math.min(from[1], to[1])];
  return { left, top, width: Math.abs(from[0] - to[0]), height: Math.abs(from[1] - to[1]) };
}
