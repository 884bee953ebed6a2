// Which layer lies over the slide, the comparison of two versions, and the legend: which tissues, and how much of each.

import { capital, correctedWords } from "./correct-words.js";
import { button, h, panelHead, segments, setText, slider } from "./dom.js";
import { area, share } from "./format.js";
import { colourOf, tissues } from "./palette.js";
import { paletteName } from "./prefs.js";

/** A legend and `update(amounts)`. `view.hidden` holds the names of tissues that are off. */
export function makeLegend(view) {
  const shown = tissues().filter((tissue) => !tissue.background);
  const rows = new Map(shown.map((tissue, index) => [tissue.name, makeRow(tissue, index)]));
  const names = shown.map((tissue) => tissue.name);
  const set = (hidden) => view.set({ hidden: new Set(hidden), highlight: null });
  const all = button("All", () => set([]), "small quiet");
  const none = button("None", () => set(names), "small quiet");
  const items = [...rows.values()].map((row) => row.element);
  const list = h("ul.legend", { "aria-label": "Tissues" }, items);
  const element = h("section", panelHead("Tissues", all, none), list);

  function makeRow(tissue, index) {
    const box = h("input", { type: "checkbox", on: { change: () => toggle(tissue.name) } });
    const dot = h("span.dot");
    const size = h("span.number.muted");
    const part = h("span.number.part");
    const words = { "aria-label": `Show only ${tissue.title}` };
    const only = button("only", () => solo(tissue.name), "small quiet only", words);
    const label = h(
      "label",
      { title: index < 9 ? `${tissue.title}, key ${index + 1}` : tissue.title },
      box,
      dot,
      tissue.name === tissue.title ? null : h("span.short", tissue.name),
      h("span.title", tissue.title),
    );
    return { element: h("li", { "data-tissue": tissue.name }, label, size, only, part), box, dot, size, part };
  }

  function toggle(name) {
    const hidden = new Set(view.hidden);
    if (!hidden.delete(name)) hidden.add(name);
    set(hidden);
  }

  function solo(name) {
    const others = names.filter((other) => other !== name);
    const already = !view.hidden.has(name) && others.every((other) => view.hidden.has(other));
    set(already ? [] : others);
  }

  return {
    element,
    toggle,
    names,
    update(amounts) {
      for (const [name, row] of rows) {
        const mm2 = amounts.areas[name] ?? 0;
        row.box.checked = !view.hidden.has(name);
        row.dot.style.background = colourOf(name);
        row.element.classList.toggle("absent", !mm2);
        setText(row.size, mm2 ? area(mm2) : "–");
        setText(row.part, mm2 ? share(amounts.shares[name]) : "");
        row.element.style.setProperty("--share", amounts.shares[name] ?? 0);
      }
    },
  };
}

const LAYERS = [
  ["corrected", "Corrected"],
  ["tissue", "Tissue"],
  ["coarse", "Coarse"],
  ["confidence", "Confidence"],
  ["improvement", "Improvement"],
  ["none", "None"],
];
const COMPARE = [
  ["off", "Off"],
  ["side", "Side by side"],
  ["swipe", "Swipe"],
];

/** What is compared, by the version that is shown: the layers, and a word for each. */
export const PAIRS = {
  tissue: {
    layers: ["coarse", "tissue"],
    words: ["Coarse", "Final"],
    note: "Coarse: from the coarse head. Final: the result.",
  },
  corrected: {
    layers: ["tissue", "corrected"],
    words: ["Network", "Corrected"],
    note: "Network: its own result. Corrected: with a person's corrections.",
  },
};

const LEGENDS = {
  tissue: (store) => (store.active.length ? "The network's result, without corrections." : ""),
  corrected: (store) => (store.active.length ? `${capital(correctedWords(store))}.` : "No corrections yet."),
  coarse: () => "What the network's coarse head predicted.",
  improvement() {
    const [good, bad] = paletteName() === "safe" ? ["blue", "orange"] : ["green", "red"];
    return `Where the final prediction corrected the coarse one (${good}) and where it made it wrong (${bad}).`;
  },
};

/** The panel and `update()`; `layers` are those the slide has, `store` its corrections. */
export function makeLayers(layers, view, store) {
  const has = (layer) => layer === "none" || layer === "corrected" || layers.includes(layer);
  const shown = LAYERS.filter(([key]) => has(key) || key === "coarse" || key === "confidence");
  const why = "Available only for slides that were segmented here or with --maps";
  const layer = segments(
    "Layer",
    shown.map(([key, label]) => [key, label, has(key), has(key) ? "" : why]),
    view.layer,
    (key) => view.set({ layer: key, compare: key === "tissue" || key === "corrected" ? view.compare : "off" }),
  );
  const compare = segments("Compare two versions", COMPARE, view.compare, (key) =>
    view.set({ compare: key, layer: key === "off" ? view.layer : view.version }),
  );
  const fade = (value) => view.set({ opacity: value / 100 });
  const opacity = slider("Opacity", [0, 100, 5], fade, "Opacity of the layer");
  const note = h("p.small.muted.note");
  const ramp = h("div.ramp.small.muted", { hidden: true }, "unsure", h("span"), "sure");
  const element = h("section.layers", layer, opacity.element, h("div.line", h("span", "Compare"), compare), note, ramp);

  const canCompare = () => has(PAIRS[view.version].layers[0]);

  return {
    element,
    has,
    canCompare,
    update() {
      const usable = canCompare();
      layer.select(view.layer);
      layer.querySelector('[data-value="corrected"]').hidden = !store.active.length && view.layer !== "corrected";
      compare.select(view.compare);
      for (const button of compare.querySelectorAll("button:not([data-value=off])")) {
        button.disabled = !usable;
        button.title = usable ? "" : why;
      }
      opacity.show(Math.round(view.opacity * 100), `${Math.round(view.opacity * 100)} %`);
      opacity.input.disabled = view.layer === "none";
      note.textContent = view.compare === "off" ? (LEGENDS[view.layer]?.(store) ?? "") : PAIRS[view.version].note;
      note.hidden = !note.textContent;
      ramp.hidden = view.layer !== "confidence";
    },
  };
}
