// The relations beside the slide: the graph, what is chosen in it, and the same as a table for reading and keyboards.

import { capital } from "./correct-words.js";
import { button, h, segments } from "./dom.js";
import { area, count, length, share } from "./format.js";
import { drawGraph } from "./graph.js";
import { dotOf, titleOf } from "./palette.js";
import { isDark } from "./prefs.js";
import { neighbours, networkGraph, notMeasured, tissueGraph } from "./relations.js";

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

const KINDS = { boundary: "Borders", attention: "Attention", edge_weight: "Edge weights" };
const FEW = 8;

/**
 * The panel and `update(document)`, whose tissue graph is drawn; the network's own relations stay those of the first
 * document. `view.highlight` is what was chosen, `view.relation` which kind of relation is drawn,
 * `view.attentionLayer` of which layer. `go(window)` shows a window of the network on the slide.
 */
export function makeRelations(first, view, go) {
  let document = first;
  const network = first.network ?? null;
  const isUsable = (key) => (key === "boundary" ? [true, ""] : usable(network, key));
  const choices = Object.entries(KINDS).map(([key, label]) => [key, label, ...isUsable(key)]);
  const kinds = segments("Relations", choices, view.relation, (relation) => view.set({ relation }));
  const numbers = network ? [...network.attention.keys()] : [];
  const steps = [[MEAN, "All layers"], ...numbers.map((number) => [String(number), String(number + 1)])];
  const layers = segments("Layer of the attention", steps, view.attentionLayer, (attentionLayer) =>
    view.set({ attentionLayer }),
  );
  const note = h("p.small.muted.note");
  const picture = h("div.graph-frame");
  const reading = h("div.reading", { role: "status" });
  const table = h("div");
  const element = h("section.relations", kinds, layers, note, picture, reading, table);
  // The network also relates what no tissue graph measures: the background, or a tissue that is not in the mask.
  const beside = network ? notMeasured(network, tissueGraph(document, null)) : [];
  let all = false;

  const pick = (choice) => view.set({ highlight: sameChoice(view.highlight, choice) ? null : choice, window: null });

  function current() {
    const graph = tissueGraph(document, view.piece);
    const learned = view.relation !== "boundary" && network;
    const names = graph.nodes.map((node) => node.name);
    const edges = learned
      ? networkGraph(network, [...names, ...beside], matrixOf(network, view.relation, view.attentionLayer)).map(
          (edge) => ({
            ...edge,
            label: `${edge.a} → ${edge.b} ${edge.forth.toFixed(3)}, ${edge.b} → ${edge.a} ${edge.back.toFixed(3)}`,
          }),
        )
      : graph.edges
          .filter((edge) => edge.a !== "outside" && edge.b !== "outside")
          .map((edge) => ({ ...edge, weight: edge.mm, label: `${edge.a} – ${edge.b}: ${length(edge.mm)}` }));
    const nodes = graph.nodes.map((node) => ({ ...node, label: `${titleOf(node.name)}, ${area(node.area)}` }));
    if (learned) nodes.push(...beside.map((name) => ({ name, share: 0, label: `${titleOf(name)}, not measured` })));
    return { graph, nodes, edges, learned };
  }

  function update(next = document) {
    document = next;
    const { graph, nodes, edges, learned } = current();
    kinds.select(view.relation);
    layers.select(view.attentionLayer);
    layers.hidden = view.relation !== "attention" || numbers.length < 2;
    note.textContent = learned
      ? `${capital(network.note)}. Means over the windows that have the edge, of ${count(network.windows, "window")} ` +
        "of the whole slide; node size is area."
      : "Node size is area, edge width is border length. Click to highlight on the slide.";
    note.classList.toggle("strong", Boolean(learned));
    // The focus stays on the same tissue when the drawing is made anew.
    const focused = picture.contains(window.document.activeElement) ? window.document.activeElement.dataset.node : null;
    if (nodes.length)
      picture.replaceChildren(drawGraph({ nodes, edges, selected: view.highlight, pick, colours: colours(isDark()) }));
    else picture.replaceChildren(h("p.muted", "No tissue here."));
    if (focused) picture.querySelector(`[data-node="${CSS.escape(focused)}"]`)?.focus();
    reading.replaceChildren(...readOut(graph, edges, view, learned, () => pick(view.highlight)));
    const pair = chosenPair();
    const list = pair && listWindows(network, pair, view.window, go);
    if (list) reading.append(list);
    table.replaceChildren(...drawTable(edges, learned));
  }

  function drawTable(edges, learned) {
    const pairButton = ({ a, b }) =>
      button([dotOf(a), a, " – ", dotOf(b), b], () => pick({ kind: "interface", a, b }), "", { class: "link" });
    const rows = (all ? edges : edges.slice(0, FEW)).map((edge) =>
      h(
        "tr",
        { "aria-selected": String(isChosen(view.highlight, edge)) },
        h("td", pairButton(edge)),
        learned
          ? [edge.forth.toFixed(3), edge.back.toFixed(3), edge.windows].map((value) => h("td.number", value))
          : [h("td.number", length(edge.mm)), h("td.number", edge.contacts)],
      ),
    );
    const more = () => {
      all = !all;
      update();
    };
    const heads = learned ? ["Pair", "→", "←", "Windows"] : ["Interface", "Border", "Contacts"];
    const columns = heads.map((head) => h("th", { scope: "col" }, head));
    return [
      h("table.numbers", h("thead", h("tr", columns)), h("tbody", rows)),
      edges.length > FEW ? button(all ? "Fewer" : `All ${edges.length}`, more, "small quiet") : null,
    ].filter(Boolean);
  }

  /** The edge whose windows are shown, or null. */
  function chosenPair() {
    return network && view.relation === "attention" && view.highlight?.kind === "interface" ? view.highlight : null;
  }

  return {
    element,
    update,
    /** Windows to mark on the slide: those behind the chosen edge, in either direction, each once. */
    windows() {
      const pair = chosenPair();
      const all = (pair ? windowsBehind(network, pair) : []).flatMap((edge) => edge.windows);
      return [...new Map(all.map((window) => [`${window.top} ${window.left}`, window])).values()];
    },
    /** The drawing as a file of its own. */
    figure() {
      const { nodes, edges } = current();
      return drawGraph({ nodes, edges, colours: colours(false) });
    },
  };
}

const colours = (dark) =>
  dark
    ? { ink: "#e6eaed", line: "#94a2ac", accent: "#6fc0da", ground: "#1b2024" }
    : { ink: "#1b2227", line: "#7b8892", accent: "#14607a", ground: "#ffffff" };
const isChosen = (choice, edge) => choice?.kind === "interface" && choice.a === edge.a && choice.b === edge.b;
const sameChoice = (one, other) => one && other && JSON.stringify(one) === JSON.stringify(other);

function readOut(graph, edges, view, learned, clear) {
  const choice = view.highlight;
  if (!choice) return [];
  const head = (title, ...dots) =>
    h("div.panel-head", dots, h("h3", title), h("span.grow"), button("Clear", clear, "small quiet"));
  if (choice.kind === "tissue") {
    const node = graph.nodes.find((entry) => entry.name === choice.name);
    if (!node) return [head(titleOf(choice.name), dotOf(choice.name)), h("p.muted", "Not in this piece.")];
    const near = neighbours(graph, node.name)
      .slice(0, 4)
      .map((entry) => [
        entry.name === "outside" ? "borders on the outside" : `borders on ${titleOf(entry.name)}`,
        `${length(entry.mm)} (${share(entry.share)})`,
      ]);
    return [
      head(titleOf(node.name), dotOf(node.name)),
      facts([
        ["Area", `${area(node.area)} (${share(node.share)} of the tissue)`],
        ["Border", length(node.boundary)],
        ["Regions", node.regions],
        ...near,
      ]),
    ];
  }
  const title = `${choice.a} – ${choice.b}`;
  const edge = edges.find((entry) => isChosen(choice, entry));
  if (!edge) return [head(title, dotOf(choice.a), dotOf(choice.b)), h("p.muted", "Not in this piece.")];
  const rows = learned
    ? [
        [`${edge.a} → ${edge.b}`, meanText(edge.forth, windowCount(learned, edge.a, edge.b))],
        [`${edge.b} → ${edge.a}`, meanText(edge.back, windowCount(learned, edge.b, edge.a))],
      ]
    : [
        ["Border", length(edge.mm)],
        [`of the border of ${edge.a}`, share(edge.shareA)],
        [`of the border of ${edge.b}`, share(edge.shareB)],
        ["Contacts", edge.contacts],
      ];
  return [head(title, dotOf(edge.a), dotOf(edge.b)), facts(rows)];
}

/** Label and value, one pair a line. */
export function facts(rows) {
  return h(
    "dl.facts-list",
    rows.map(([label, value]) => h("div", h("dt", label), h("dd.number", String(value)))),
  );
}
