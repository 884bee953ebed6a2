// Which layer lies over the slide, its opacity, and the comparison of coarse and final prediction.

import { h, segments } from "./dom.js";
import { paletteName } from "./prefs.js";

const LAYERS = [
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

const LEGENDS = {
  coarse: () => "What the network's coarse head predicted.",
  improvement() {
    const [good, bad] = paletteName() === "safe" ? ["blue", "orange"] : ["green", "red"];
    return `Where the final prediction corrected the coarse one (${good}) and where it made it wrong (${bad}).`;
  },
};

/** The panel and `update()`; `layers` are those the slide has. */
export function makeLayers(layers, view, changed) {
  const has = (layer) => layer === "none" || layers.includes(layer);
  const shown = LAYERS.filter(([key]) => has(key) || key === "coarse" || key === "confidence");
  const why = {
    coarse: "Kept only for slides that were segmented here or with --maps",
    confidence: "Kept only for slides that were segmented here or with --maps",
  };
  const layer = segments(
    "Layer",
    shown.map(([key, label]) => [key, label, has(key), has(key) ? "" : why[key]]),
    view.layer,
    (key) => {
      view.layer = key;
      if (key !== "tissue") view.compare = "off";
      changed();
    },
  );
  const compare = segments(
    "Compare coarse and final prediction",
    COMPARE.map(([key, label]) => [key, label, key === "off" || has("coarse"), has("coarse") ? "" : why.coarse]),
    view.compare,
    (key) => {
      view.compare = key;
      if (key !== "off") view.layer = "tissue";
      changed();
    },
  );
  const opacity = h("input", {
    type: "range",
    min: 0,
    max: 100,
    step: 5,
    "aria-label": "Opacity of the layer",
    on: {
      input: () => {
        view.opacity = opacity.value / 100;
        changed();
      },
    },
  });
  const amount = h("output", { class: "number muted" });
  const note = h("p", { class: "small muted note" });
  const ramp = h("div", { class: "ramp small muted", hidden: true }, "unsure", h("span", {}), "sure");
  const element = h(
    "section",
    { class: "layers" },
    layer,
    h("label", { class: "line" }, h("span", {}, "Opacity"), opacity, amount),
    h("div", { class: "line" }, h("span", {}, "Compare"), compare),
    note,
    ramp,
  );

  return {
    element,
    has,
    update() {
      layer.select(view.layer);
      compare.select(view.compare);
      opacity.value = Math.round(view.opacity * 100);
      opacity.disabled = view.layer === "none";
      amount.textContent = `${Math.round(view.opacity * 100)} %`;
      note.textContent =
        view.compare === "off"
          ? (LEGENDS[view.layer]?.() ?? "")
          : "Coarse: from the coarse head. Final: the result.";
      note.hidden = !note.textContent;
      ramp.hidden = view.layer !== "confidence";
    },
  };
}
