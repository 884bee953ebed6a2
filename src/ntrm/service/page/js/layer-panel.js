// Which layer lies over the slide, its opacity, and the comparison of two versions of it.

import { capital, correctedWords } from "./correct-words.js";
import { h, segments, slider } from "./dom.js";
import { paletteName } from "./prefs.js";

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
export function makeLayers(layers, view, store, changed) {
  const has = (layer) => layer === "none" || layer === "corrected" || layers.includes(layer);
  const shown = LAYERS.filter(([key]) => has(key) || key === "coarse" || key === "confidence");
  const why = "Available only for slides that were segmented here or with --maps";
  const layer = segments(
    "Layer",
    shown.map(([key, label]) => [key, label, has(key), has(key) ? "" : why]),
    view.layer,
    (key) => {
      view.layer = key;
      if (key !== "tissue" && key !== "corrected") view.compare = "off";
      changed();
    },
  );
  const compare = segments("Compare two versions", COMPARE, view.compare, (key) => {
    view.compare = key;
    if (key !== "off") view.layer = view.version;
    changed();
  });
  const opacity = slider(
    "Opacity",
    [0, 100, 5],
    (value) => {
      view.opacity = value / 100;
      changed();
    },
    "Opacity of the layer",
  );
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
