// Saves what is on the screen: the view as PNG, the graph as SVG.

import { html, render } from "../vendor/preact/preact.min.js";
import { correctedWords, modelWords } from "./correct-words.js";
import { pathOf, screenMatrix } from "./drawing.js";
import { unlikeWords } from "./familiarity.js";
import { scaleBar } from "./geometry.js";
import { Graph } from "./graph.js";
import { amountsOf } from "./layer-panel.js";
import { colourOf, inLegend } from "./palette.js";
import { graphShown } from "./relations.js";
import { CLASSES } from "./view-paint.js";

const INK = "#1b2227";
const WINDOW = "#7a1fa2";
const LINES = { deep: "#ffd60a", lateral: "#00e5ff", depth: "#ff9f1c" };

/** Hands a file to the browser. */
function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** The tissue graph as it is shown, in the colours of paper. */
export function saveGraph(view) {
  const { nodes, edges } = graphShown(view);
  const frame = document.createElement("div");
  render(html`<${Graph} nodes=${nodes} edges=${edges} theme="light" />`, frame);
  const svg = frame.firstElementChild;
  svg.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  const text = new XMLSerializer().serializeToString(svg);
  save(new Blob([text], { type: "image/svg+xml" }), `${view.slide.slide_id}-graph.svg`);
}

/** The present view with its legend, and in words what it is of. */
export async function saveView(view) {
  const { slide, summary, stage, store } = view;
  const { areas } = amountsOf(view);
  const names = inLegend().map((tissue) => tissue.name);
  const shown = names.filter((name) => !view.hidden.has(name) && (areas[name] ?? 0) > 0);
  const { program, purpose } = summary;
  const words = [
    slide.slide_id,
    modelWords(summary),
    `NTRM ${program.version}`,
    view.isCorrected && correctedWords(store),
    unlikeWords(slide),
    purpose,
  ];
  const legend = CLASSES.includes(view.layer) ? shown : [];
  const blob = await viewBlob({ ...stage.figure(), legend, footer: words.filter(Boolean).join(" · ") });
  save(blob, `${slide.slide_id}-view.png`);
}

/**
 * The present view with lines, scale bar, legend and the notice. `panes` are {viewer, left, width, clip} in CSS pixels,
 * `legend` names of tissues, `footer` the text below.
 */
async function viewBlob({ panes, drawing, width, height, legend, footer }) {
  const scale = window.devicePixelRatio || 1;
  const strip = 52;
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width, height + strip].map((side) => Math.round(side * scale));
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  context.fillStyle = "#fff";
  context.fillRect(0, 0, width, height + strip);
  for (const pane of panes) drawPane(context, pane, height);
  for (const { ring, chosen } of drawing?.marks ?? []) drawRings(context, drawing, [ring], WINDOW, chosen ? 4 : 1.75);
  if (drawing?.outline) drawRings(context, drawing, drawing.outline, "#111", 1.75);
  if (drawing) drawLines(context, drawing);
  drawBar(context, panes[0].viewer, height);
  drawLegend(context, legend, width, height);
  context.fillStyle = INK;
  context.font = "11px system-ui, sans-serif";
  context.fillText(footer, 12, height + strip - 10);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

function drawPane(context, { viewer, left, width, clip }, height) {
  context.save();
  context.beginPath();
  context.rect(left + (clip ?? 0), 0, width - (clip ?? 0), height);
  context.clip();
  context.drawImage(viewer.osd.drawer.canvas, left, 0, width, height);
  context.restore();
}

/** A line over a wider one that sets it off from the picture. */
function stroke(context, path, ...lines) {
  for (const [strokeStyle, lineWidth] of lines) {
    Object.assign(context, { strokeStyle, lineWidth, lineJoin: "round", lineCap: "round" });
    context.stroke(path);
  }
}

function drawRings(context, drawing, rings, ink, thickness) {
  const path = new Path2D();
  path.addPath(new Path2D(pathOf(rings)), new DOMMatrix(screenMatrix(drawing.viewer)));
  stroke(context, path, ["rgb(255 255 255 / 90%)", thickness + 2.25], [ink, thickness]);
}

function drawLines(context, { viewer, parts }) {
  context.font = "600 12px system-ui, sans-serif";
  for (const { line, label } of parts) {
    const [from, to] = [line.from, line.to].map((point) => viewer.toScreen(point).join(" "));
    stroke(context, new Path2D(`M${from}L${to}`), ["#000", 5], [LINES[line.kind], 2.5]);
    const place = ["x", "y"].map((name) => Number(label.getAttribute(name)));
    Object.assign(context, { strokeStyle: "#fff", lineWidth: 4, fillStyle: INK });
    context.strokeText(line.label, ...place);
    context.fillText(line.label, ...place);
  }
}

function drawBar(context, viewer, height) {
  const { pixels, label } = scaleBar(viewer.umPerPixel, 160);
  context.fillStyle = "rgb(255 255 255 / 85%)";
  context.fillRect(8, height - 34, pixels + 16, 28);
  context.fillStyle = INK;
  context.fillRect(16, height - 14, pixels, 3);
  context.font = "12px system-ui, sans-serif";
  context.fillText(label, 16, height - 19);
}

function drawLegend(context, names, width, height) {
  context.font = "12px system-ui, sans-serif";
  let x = 12;
  for (const name of names) {
    const room = context.measureText(name).width + 32;
    if (x + room > width) return;
    context.fillStyle = colourOf(name);
    context.fillRect(x, height + 9, 12, 12);
    context.strokeStyle = "rgb(0 0 0 / 40%)";
    context.lineWidth = 1;
    context.strokeRect(x + 0.5, height + 9.5, 11, 11);
    context.fillStyle = INK;
    context.fillText(name, x + 17, height + 19);
    x += room;
  }
}
