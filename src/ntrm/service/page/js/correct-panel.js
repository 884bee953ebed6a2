// The panel of the mode "Correct": what is missing, tools, tissues with their keys, what is chosen, what was done.

import { makeChoiceBox } from "./correct-box.js";
import { WIDTHS } from "./correct-strokes.js";
import { capital, resultWords, stepWords } from "./correct-words.js";
import { button, h, iconButton, panelHead, progressBar, segments, setText, slider, tick } from "./dom.js";
import { moment } from "./format.js";
import { colourOf, dotOf, tissues } from "./palette.js";
import { initialsGiven, setInitials } from "./prefs.js";

const INITIALS = 8; // characters that the log takes
const FEW = 30;

/** The list and `update()`. */
export function makeHistory(store, { writer }) {
  const undo = iconButton("undo", "Undo (z)", () => writer.undo());
  const redo = iconButton("redo", "Redo (Shift z)", () => writer.redo());
  const list = h("ol.steps");
  const none = h("p.small.muted", "Nothing was corrected.");
  const note = h("p.small.muted");
  const initials = h("input.field", {
    maxLength: INITIALS,
    value: initialsGiven() ?? "",
    autocomplete: "off",
    spellcheck: false,
    on: { input: () => setInitials(initials.value) },
  });
  const element = h(
    "div.history",
    panelHead("Steps", undo, redo),
    note,
    none,
    list,
    h("label.initials.small", "Initials, optional: written with each step", initials),
  );
  let drawn = "";

  function update() {
    const { document } = store;
    const steps = (document?.steps ?? []).filter((step) => step.action === "name" || step.action === "draw");
    undo.disabled = !document?.undo;
    redo.disabled = !document?.redo;
    none.hidden = steps.length > 0;
    setText(note, resultWords(store));
    note.hidden = !note.textContent;
    const state = JSON.stringify(steps) + colourOf(steps[0]?.tissue);
    if (state === drawn) return;
    drawn = state;
    const rest = steps.length - FEW;
    list.replaceChildren(
      ...steps.reverse().slice(0, FEW).map(row),
      ...(rest > 0 ? [h("li.muted", `and ${rest} before these, in corrections.jsonl`)] : []),
    );
  }

  function row(step) {
    const back = button("Undo to here", () => writer.undoTo(step.number), "small quiet", {
      "aria-label": `Undo step ${step.number} and what came after it`,
      title: "Undo this and what came after it",
    });
    return h(
      "li",
      { class: step.active ? "" : "undone", "data-step": step.number },
      h("span.number.muted", step.number),
      dotOf(step.tissue),
      h(
        "span.words",
        capital(stepWords(step)),
        h("span.muted", ` ${[moment(step.when), step.by].filter(Boolean).join(", ")}`),
      ),
      step.active ? back : h("span.muted.small", "undone"),
    );
  }

  return { element, update };
}

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
  const only = tick("Name only what I picked", (checked) => acts.set({ only: checked }));
  const doublings = [Math.log2(REACH.least), Math.log2(REACH.most), 0.25];
  const reach = slider("How far", doublings, (value) => acts.set({ reach: 2 ** value }));
  const width = slider("Brush", [WIDTHS.least, WIDTHS.most, 10], (value) => acts.set({ width: value }));
  const element = h("div.correct-tools", tool, h("div.unit-line", unit, only.element), reach.element, width.element);
  return {
    element,
    update(isReady) {
      const paints = settings.tool === "brush" || settings.tool === "divide";
      tool.select(settings.tool);
      unit.select(settings.whole || !isReady ? "region" : "part");
      unit.querySelector('[data-value="part"]').disabled = !isReady;
      only.input.checked = settings.only || !isReady;
      only.input.disabled = !isReady;
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
