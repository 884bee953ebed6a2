// Which tiles lie over the slide: from the state of the view to the layers of a viewer.

import { tissueNamed } from "./palette.js";
import { paletteName } from "./prefs.js";

const DIMMED = 0.35;
/** Layers whose pixels are tissues. */
export const CLASSES = ["tissue", "coarse", "corrected"];

/** `paint(viewer, layer)` for a view; `store` says which corrections there are. */
export function makePaint(view, geometry, store) {
  const index = (name) => tissueNamed(name).index;
  const numbers = (names) =>
    [...names]
      .map(index)
      .sort((a, b) => a - b)
      .join(",");

  /** Which mask tiles are of: with the corrections or without, and of which revision, by which the browser keeps them. */
  const versionOf = (corrected) =>
    corrected ? { v: store.version, r: store.document.revision } : { r: geometry.revision };

  /** What the tiles of a layer of tissues depend on; only what differs from the default. */
  function query(version) {
    const parts = new URLSearchParams(version);
    if (paletteName() === "safe") parts.set("palette", "safe");
    if (view.highlight?.kind === "tissue") parts.set("only", index(view.highlight.name));
    else if (view.highlight) parts.set("only", numbers([view.highlight.a, view.highlight.b]));
    else if (view.hidden.size) parts.set("hide", numbers(view.hidden));
    return parts.toString().replaceAll("%2C", ",");
  }

  return function paint(viewer, wanted) {
    // Without corrections both versions are the same, and the browser has the tiles of one.
    const layer = wanted === "corrected" && !store.active.length ? "tissue" : wanted;
    const tissue = CLASSES.includes(layer);
    const interfaceOn = view.highlight?.kind === "interface";
    viewer.overlay.setOpacity(interfaceOn && tissue ? Math.min(view.opacity, DIMMED) : view.opacity);
    const safe = layer === "improvement" && paletteName() === "safe" ? "&palette=safe" : "";
    viewer.showOverlay(
      layer === "none" ? null : layer,
      tissue ? query(versionOf(layer === "corrected")) : `r=${geometry.revision}${safe}`,
    );
    const drawn = interfaceOn && geometry.layers.includes("interface");
    // Over a layer that is no mask they are those of the version whose numbers are shown.
    const corrected = (tissue ? layer : view.version) === "corrected" && store.active.length;
    viewer.showInterface(drawn ? [view.highlight.a, view.highlight.b] : null, versionOf(corrected));
  };
}
