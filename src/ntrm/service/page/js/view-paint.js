// Which tiles lie over the slide: from the state of the view to the layers of a viewer.

import { inLegend, tissueNamed, unnamed } from "./palette.js";
import { isSafe } from "./state.js";

const DIMMED = 0.35;
/** Layers whose pixels are tissues. */
export const CLASSES = ["tissue", "coarse", "corrected"];

const numbers = (names) =>
  names
    .flatMap((name) => tissueNamed(name)?.index ?? []) // results that are still being written may have older names
    .sort((a, b) => a - b)
    .join(",");

/** What a viewer shows where a layer is wanted: tiles, how opaque they are, and the marked interface. */
export function paintOf(view, wanted) {
  const { store, geometry, highlight, opacity } = view;
  const isCorrected = store.active.length > 0;
  // Without corrections both versions are the same, and the browser has the tiles of one.
  const layer = wanted === "corrected" && !isCorrected ? "tissue" : wanted;
  const isTissue = CLASSES.includes(layer);
  const pair = highlight?.kind === "interface" ? [highlight.a, highlight.b] : null;
  const safe = layer === "improvement" && isSafe() ? "&palette=safe" : "";
  // Over a layer that is no mask the interface is of the version whose numbers are shown.
  const marked = (isTissue ? layer : view.version) === "corrected" && isCorrected;
  return {
    layer: layer === "none" ? null : layer,
    query: isTissue ? queryOf(view, layer === "corrected") : `r=${geometry.revision}${safe}`,
    opacity: pair && isTissue ? Math.min(opacity, DIMMED) : opacity,
    pair: geometry.layers.includes("interface") ? pair : null,
    version: versionOf(view, marked),
  };
}

/** Lets a viewer show it. */
export function show(viewer, { layer, query, opacity, pair, version }) {
  viewer.overlay.setOpacity(opacity);
  viewer.showOverlay(layer, query);
  viewer.showInterface(pair, version);
}

/** Which mask tiles are of: with the corrections or without, and of which revision, by which the browser keeps them. */
const versionOf = ({ store, geometry }, corrected) =>
  corrected ? { v: store.version, r: store.document.revision } : { r: geometry.revision };

/** What the tiles of a layer of tissues depend on; only what differs from the default. */
function queryOf(view, corrected) {
  const { highlight, hidden } = view;
  // Tissue without a name is only drawn where it is asked for; that is no reason to ask for other tiles.
  const showsUnnamed = unnamed() && !hidden.has(unnamed());
  const names = inLegend().map((tissue) => tissue.name);
  const off = names.filter((name) => hidden.has(name) && name !== unnamed());
  const parts = new URLSearchParams(versionOf(view, corrected));
  if (isSafe()) parts.set("palette", "safe");
  if (highlight?.kind === "tissue") parts.set("only", numbers([highlight.name]));
  else if (highlight) parts.set("only", numbers([highlight.a, highlight.b]));
  else if (showsUnnamed) parts.set("only", numbers(names.filter((name) => !hidden.has(name))));
  else if (off.length) parts.set("hide", numbers(off));
  return parts.toString().replaceAll("%2C", ",");
}
