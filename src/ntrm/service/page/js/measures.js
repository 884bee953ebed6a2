// Margins, depth and orientation of the pieces, with their lines on the slide, or the reason why there is none.

import { button, h, panelHead, tick } from "./dom.js";
import { length } from "./format.js";
import { maskToSlide } from "./geometry.js";

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

/** The panel and `update(summary)`. `go(line)` shows a line, `view.lines` whether lines are drawn. */
export function makeMeasures(geometry, view, go) {
  const drawn = tick("Draw lines", (lines) => view.set({ lines }));
  const body = h("div.measures");
  const element = h("section", panelHead("Measurements", drawn.element), body);

  function update(summary) {
    drawn.input.checked = view.lines;
    const pieces = summary.pieces.filter((entry) => view.piece === null || entry.number === view.piece);
    body.replaceChildren(
      ...(pieces.length
        ? pieces.map((entry) => drawPiece(summary, entry))
        : [h("p.muted", "No piece of tissue was found on this slide.")]),
    );
  }

  function drawPiece(summary, entry) {
    const lines = measureLines(summary, geometry, entry.number);
    const lineOf = (key) => lines.find((line) => line.key === key);
    const rows = Object.entries(entry.measurements).map(([key, measured]) => drawRow(key, measured, lineOf(key)));
    const cancers = entry.cancers
      .filter((cancer) => cancer.present)
      .map((cancer) => h("li", `${cancer.name}: ${cancer.reason}`));
    return h(
      "article",
      summary.pieces.length > 1 ? h("h3", `Piece ${entry.number}`) : null,
      h("dl.facts-list", rows),
      cancers.length ? h("ul.small.muted", cancers) : null,
      h("p.small.muted.prose", (entry.text ?? []).slice(0, 2).join(" ")),
    );
  }

  function drawRow(key, measured, line) {
    const text = value(measured);
    const shown = text === null ? h("span.why", "Not assessed: ", measured.reason) : h("span.number", text);
    const kind = KINDS[key] ? h("span", { class: `line-key ${KINDS[key]}` }) : null;
    const words = { "aria-label": `Show ${title(key)} on the slide` };
    const find = line ? button("Show", () => go(line), "small quiet", words) : null;
    return h("div", { "data-measure": key }, h("dt", kind, title(key)), h("dd", shown, find));
  }

  return { element, update };
}
