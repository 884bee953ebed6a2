// The panel of the mode "Correct": what is missing, tools, tissues with their keys, what is chosen, what was done.

import { makeChoiceBox } from "./correct-box.js";
import { makeHistory } from "./correct-history.js";
import { WIDTHS } from "./correct-strokes.js";
import { button, h, progressBar, segments, slider } from "./dom.js";
import { colourOf, tissues } from "./palette.js";

const KEYS = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "q", "y", "h", "j"];
const TOOLS = [
  ["pick", "Pick", true, "Click parts; Shift adds (v)"],
  ["lasso", "Lasso", true, "Draw around parts (a)"],
  ["brush", "Brush", true, "Paint where a border is wrong (f)"],
  ["divide", "Divide", true, "Draw a line through a region (k)"],
];
/** The slider's steps are halves of a doubling. */
export const REACH = { least: 0.25, most: 4 };

/** Tissues in the order of their keys: as in the legend, the background last. */
export const byKey = () =>
  [...tissues()]
    .sort((one, other) => one.background - other.background)
    .map((tissue, index) => ({ ...tissue, key: KEYS[index] ?? "" }));

/** The panel and `update(message, isOn)`. */
export function makeCorrectPanel({ settings, choice, store, acts }) {
  const intro = h(
    "div.correct-intro",
    h(
      "p.muted",
      "Pick a part of the slide and name its tissue. Similar parts can follow. The network's result is kept.",
    ),
    button("Correct this slide", () => acts.toggle(), "primary"),
  );
  const state = h("div.graph-state", { role: "status" });
  const tools = makeTools(settings, acts);
  const box = makeChoiceBox({ settings, choice, acts });
  const names = makeNames(settings, choice, acts);
  const history = makeHistory(store, acts);
  const work = h("div.correct-work", state, tools.element, box.element, names.element);
  const element = h("section.correct", intro, work, history.element);

  return {
    element,
    update(message, isOn) {
      intro.hidden = isOn;
      work.hidden = !isOn;
      drawState(state, store, acts);
      tools.update(store.isReady);
      box.update(message);
      names.update();
      history.update();
    },
  };
}

function makeTools(settings, acts) {
  const tool = segments("Tool", TOOLS, settings.tool, (key) => acts.set({ tool: key }));
  const unit = segments(
    "What a click picks",
    [
      ["part", "Part", true, "A small part of a region (r)"],
      ["region", "Whole region", true, "The connected region of the network's mask (r)"],
    ],
    "part",
    (key) => acts.set({ whole: key === "region" }),
  );
  const only = h("input", { type: "checkbox", on: { change: () => acts.set({ only: only.checked }) } });
  const onlyLine = h("label.switch", only, "Name only what I picked");
  const doublings = [Math.log2(REACH.least), Math.log2(REACH.most), 0.25];
  const reach = slider("How far", doublings, (value) => acts.set({ reach: 2 ** value }));
  const width = slider("Brush", [WIDTHS.least, WIDTHS.most, 10], (value) => acts.set({ width: value }));
  const element = h("div.correct-tools", tool, h("div.unit-line", unit, onlyLine), reach.element, width.element);
  return {
    element,
    update(isReady) {
      const paints = settings.tool === "brush" || settings.tool === "divide";
      tool.select(settings.tool);
      unit.select(settings.whole || !isReady ? "region" : "part");
      unit.querySelector('[data-value="part"]').disabled = !isReady;
      only.checked = settings.only || !isReady;
      only.disabled = !isReady;
      unit.parentElement.hidden = paints;
      reach.element.hidden = paints || settings.only || !isReady;
      reach.show(Math.log2(settings.reach), `× ${Number(settings.reach.toPrecision(2))}`);
      width.element.hidden = settings.tool !== "brush";
      width.show(settings.width, `${settings.width} µm`);
    },
  };
}

/** All tissues as buttons with their keys. */
function makeNames(settings, choice, acts) {
  const rows = byKey().map((tissue) => {
    const dot = h("span.dot");
    const element = h(
      "button",
      {
        type: "button",
        title: tissue.key ? `${tissue.title}, key ${tissue.key}` : tissue.title,
        "data-name": tissue.name,
        on: { click: () => acts.nameFromList(tissue.name) },
      },
      h("kbd", { "aria-hidden": "true" }, tissue.key),
      dot,
      h("span.short", tissue.name),
      tissue.name === tissue.title ? null : h("span.title", tissue.title),
    );
    return { tissue, dot, element };
  });
  const element = h(
    "div.names",
    { role: "group", "aria-label": "Name it" },
    rows.map((row) => row.element),
  );
  return {
    element,
    update() {
      const chosen = choice.name ?? settings.brush;
      for (const { tissue, dot, element } of rows) {
        dot.style.background = colourOf(tissue.name);
        element.setAttribute("aria-pressed", String(tissue.name === chosen));
      }
    },
  };
}

/** Whether others can follow, and what works until then. */
function drawState(element, { document, error, isReady }, acts) {
  element.hidden = isReady && !error;
  if (error) element.replaceChildren(h("p.missing", error.text));
  else if (!document) element.replaceChildren(h("p.muted", "The server has not answered yet."));
  else element.replaceChildren(...graphState(document, acts));
}

const MEANWHILE = "You can name whole regions and use brush and dividing line, but nothing follows";

function graphState({ graph, graph_progress: progress, graph_reason: reason }, acts) {
  if (graph === "ready") return [];
  if (graph === "impossible" || graph === "missing")
    return [
      h("p.missing", `Parts of this slide are not known${reason ? `: ${reason}` : ""}.`),
      h("p.small.muted", `${MEANWHILE}.`),
      graph === "missing" ? button("Try again", acts.makeGraph, "small") : "",
    ];
  const percent = Math.floor((progress ?? 0) * 100);
  const bar = progressBar("Dividing into parts", { "aria-valuenow": String(percent) });
  bar.firstElementChild.style.width = `${percent}%`;
  bar.classList.toggle("busy", graph === "waiting" || !percent);
  return [
    h("p", graph === "waiting" ? "The slide waits to be divided into parts." : `Dividing into parts: ${percent} %`),
    bar,
    h("p.small.muted", `${MEANWHILE} yet. This happens once for each slide.`),
  ];
}
