// Tissue classes and their colours, as `/v1/about` gives them: the page knows no tissue by itself.

import { computed, html } from "../vendor/preact/preact.min.js";
import { isSafe, page } from "./state.js";

const classes = computed(() =>
  (page.about?.classes ?? []).map((tissue) => ({ ...tissue, title: tissue.title || tissue.name })),
);
const byName = computed(() => new Map(classes.value.map((tissue) => [tissue.name, tissue])));

export const tissues = () => classes.value;
export const tissueNamed = (name) => byName.value.get(name);
/** Tissues of the legend, in the order of their keys; what has no name yet comes last. */
export const inLegend = () =>
  tissues()
    .filter((tissue) => !tissue.background)
    .sort((one, other) => one.unnamed - other.unnamed);
/** What tissue is called that nobody has named yet; undefined where a model has named all. */
export const unnamed = () => tissues().find((tissue) => tissue.unnamed)?.name;
export const titleOf = (name) => tissueNamed(name)?.title ?? name;

/** The colour of a tissue under the chosen palette. */
export function colourOf(name) {
  const tissue = tissueNamed(name);
  if (!tissue) return "#8a949c";
  return isSafe() ? tissue.safe_colour : tissue.colour;
}

/** A small square in the colour of a tissue. */
export const Dot = ({ of }) => html`<span class="dot" style=${{ background: colourOf(of) }} />`;

/** Black or white, whichever is read more easily on `colour`. */
export function inkOn(colour) {
  const [r, g, b] = [1, 3, 5].map((at) => {
    const value = parseInt(colour.slice(at, at + 2), 16) / 255;
    return value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.36 ? "#111" : "#fff";
}
