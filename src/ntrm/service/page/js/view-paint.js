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

  /** What the tiles of a layer of tissues depend on; only what differs from the default. */
  function query(version) {
    const parts = new URLSearchParams();
    if (paletteName() === "safe") parts.set("palette", "safe");
    if (view.highlight?.kind === "tissue") parts.set("only", index(view.highlight.name));
    else if (view.highlight) parts.set("only", numbers([view.highlight.a, view.highlight.b]));
    else if (view.hidden.size) parts.set("hide", numbers(view.hidden));
    if (version) parts.set("v", version);
    return parts.toString().replaceAll("%2C", ",");
  }

  return function paint(viewer, wanted) {
    // Without corrections both versions are the same, and the browser has the tiles of one.
    const layer = wanted === "corrected" && !store.active.length ? "tissue" : wanted;
    const tissue = CLASSES.includes(layer);
    const interfaceOn = view.highlight?.kind === "interface";
    viewer.overlay.setOpacity(interfaceOn && tissue ? Math.min(view.opacity, DIMMED) : view.opacity);
    const safe = layer === "improvement" && paletteName() === "safe" ? "palette=safe" : "";
    viewer.showOverlay(
      layer === "none" ? null : layer,
      tissue ? query(layer === "corrected" ? store.version : 0) : safe,
    );
    const drawn = interfaceOn && geometry.layers.includes("interface");
    // Over a layer that is no mask they are those of the version whose numbers are shown.
    const corrected = (tissue ? layer : view.version) === "corrected" && store.active.length;
    viewer.showInterface(drawn ? [view.highlight.a, view.highlight.b] : null, corrected ? store.version : 0);
  };
}
