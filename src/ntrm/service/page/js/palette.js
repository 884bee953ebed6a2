// Tissue classes and their colours, as `/v1/about` gives them: the page knows no tissue by itself.

import { h } from "./dom.js";
import { paletteName } from "./prefs.js";

let classes = [];
let byName = new Map();

/** Takes the classes over. */
export function setClasses(list) {
  classes = list.map((tissue) => ({ ...tissue, title: tissue.title || tissue.name }));
  byName = new Map(classes.map((tissue) => [tissue.name, tissue]));
}

export const tissues = () => classes;
export const tissueNamed = (name) => byName.get(name);
export const titleOf = (name) => byName.get(name)?.title ?? name;

/** The colour of a tissue under the chosen palette. */
export function colourOf(name) {
  const tissue = byName.get(name);
  if (!tissue) return "#8a949c";
  return paletteName() === "safe" ? tissue.safe_colour : tissue.colour;
}

/** A small square in the colour of a tissue. */
export const dotOf = (name) => h("span.dot", { style: { background: colourOf(name) } });

/** Black or white, whichever is read more easily on `colour`. */
export function inkOn(colour) {
  const [r, g, b] = [1, 3, 5].map((at) => {
    const value = parseInt(colour.slice(at, at + 2), 16) / 255;
    return value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.36 ? "#111" : "#fff";
}
