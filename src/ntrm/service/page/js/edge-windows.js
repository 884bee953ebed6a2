// What the network used between two tissues: by layer, in how many windows, and the windows where it used it most.

import { button, h } from "./dom.js";
import { count } from "./format.js";

export const MEAN = "mean";
const UNUSED = "Not used by this model";

/** Whether a relation of the network can be shown, and why not. `kind` is attention or edge_weight. */
export function usable(network, kind) {
  if (!network) return [false, "This model has no relation module"];
  if (kind === "attention") return network.attention.length ? [true, ""] : [false, UNUSED];
  return network.edge_weight ? [true, ""] : [false, UNUSED];
}

/** The matrix of a relation; `layer` is a number as text, or MEAN. */
export function matrixOf(network, kind, layer) {
  if (kind !== "attention") return network[kind];
  const layers = network.attention;
  if (layer !== MEAN) return layers[Number(layer)];
  return layers[0].map((row, i) =>
    row.map((_, j) => layers.reduce((sum, matrix) => sum + matrix[i][j], 0) / layers.length),
  );
}

/** How many windows have the edge. */
export function windowCount(network, a, b) {
  const { names, edge_windows: counts } = network;
  return counts[names.indexOf(a)][names.indexOf(b)];
}

/** Both directions between two tissues: [{source, target, windows}], the strongest window first. */
export function windowsBehind(network, { a, b }) {
  return [
    [a, b],
    [b, a],
  ].map(([source, target]) => ({
    source,
    target,
    windows: network.strongest_windows.find((edge) => edge.source === source && edge.target === target)?.windows ?? [],
  }));
}

/** A list of the windows behind an edge, as buttons. `go(window)` shows one, `chosen` is the one that is shown. */
export function listWindows(network, pair, chosen, go) {
  const lists = windowsBehind(network, pair).filter((edge) => edge.windows.length);
  if (!lists.length) return null;
  return h(
    "div.edge-windows",
    h(
      "p.small.muted",
      "Windows with the highest attention, over all layers; 1.00 if there is only one sender. Click to go there.",
    ),
    lists.map(({ source, target, windows }) =>
      h(
        "div.edge-direction",
        h("span", `${source} → ${target}`),
        h(
          "span.edge-places",
          windows.map((window, index) =>
            button(window.attention.toFixed(2), () => go(window), "small quiet number", {
              "aria-pressed": String(window === chosen),
              "aria-label": `Window ${index + 1} of ${source} → ${target}, attention ${window.attention.toFixed(3)}`,
            }),
          ),
        ),
      ),
    ),
  );
}

/** "0.1234 · 17 windows" */
export function meanText(value, windows) {
  return `${value.toFixed(4)} · ${count(windows, "window")}`;
}
