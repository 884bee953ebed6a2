// The tissue graph as numbers, of one piece or of all together, and what the network itself relates.

import { area, length } from "./format.js";
import { titleOf } from "./palette.js";

/**
 * `{ nodes: [{name, title, area, share, boundary, regions}], edges: [{a, b, mm, shareA, shareB, contacts}] }`.
 * Several pieces add up; shares are then taken of the sums. `piece` null means all.
 */
function tissueGraph(document, piece) {
  const graphs = document.pieces.filter((entry) => piece === null || entry.piece === piece).map((entry) => entry.graph);
  const nodes = new Map();
  const edges = new Map();
  for (const graph of graphs) {
    for (const node of graph.nodes) {
      if (node.kind !== "tissue") continue;
      const sum = nodes.get(node.id) ?? {
        name: node.id,
        title: node.title ?? node.id,
        area: 0,
        boundary: 0,
        regions: 0,
      };
      sum.area += node.area_mm2;
      sum.boundary += node.boundary_mm;
      sum.regions += node.regions;
      nodes.set(node.id, sum);
    }
    for (const edge of graph.edges) {
      if (edge.kind !== "boundary") continue;
      const key = `${edge.source}\n${edge.target}`;
      const sum = edges.get(key) ?? { a: edge.source, b: edge.target, mm: 0, contacts: 0 };
      sum.mm += edge.boundary_mm;
      sum.contacts += edge.contacts;
      edges.set(key, sum);
    }
  }
  const total = [...nodes.values()].reduce((sum, node) => sum + node.area, 0);
  for (const node of nodes.values()) node.share = total ? node.area / total : 0;
  const part = (mm, name) => (nodes.get(name)?.boundary ? mm / nodes.get(name).boundary : null);
  return {
    nodes: [...nodes.values()].sort((a, b) => b.area - a.area),
    edges: [...edges.values()]
      .map((edge) => ({ ...edge, shareA: part(edge.mm, edge.a), shareB: part(edge.mm, edge.b) }))
      .sort((a, b) => b.mm - a.mm),
  };
}

/**
 * The network's own relations in the same form; `matrix` is attention or edge weights, whose first index sends,
 * `among` names of tissues. `windows` is how many windows have the edge in either direction.
 */
function networkGraph(network, among, matrix) {
  const { names, edge_windows: counts } = network;
  const shown = new Set(among);
  const edges = [];
  names.forEach((a, i) =>
    names.forEach((b, j) => {
      if (j <= i || !shown.has(a) || !shown.has(b)) return;
      const [forth, back] = [matrix[i][j], matrix[j][i]];
      const windows = Math.max(counts[i][j], counts[j][i]);
      if (forth > 0 || back > 0) edges.push({ a, b, forth, back, windows, weight: (forth + back) / 2 });
    }),
  );
  return edges.sort((x, y) => y.weight - x.weight);
}

/** Names that have an edge in some window of the network, and no area in the tissue graph of the whole slide. */
function notMeasured({ names, edge_windows: counts }, tissue) {
  const measured = new Set(tissue.nodes.map((node) => node.name));
  return names.filter((name, i) => !measured.has(name) && counts.some((row, j) => row[i] > 0 || counts[i][j] > 0));
}

/** What one tissue borders on, the longest border first. */
export function neighbours(graph, name) {
  return graph.edges
    .filter((edge) => edge.a === name || edge.b === name)
    .map((edge) => ({
      name: edge.a === name ? edge.b : edge.a,
      mm: edge.mm,
      share: edge.a === name ? edge.shareA : edge.shareB,
    }));
}

/** Names in an order around a circle that keeps strongly joined tissues near each other. */
export function circleOrder(names, weightOf) {
  const order = [...names];
  const cost = () => {
    let sum = 0;
    for (let i = 0; i < order.length; i += 1) {
      for (let j = i + 1; j < order.length; j += 1) {
        sum += weightOf(order[i], order[j]) * Math.sin((Math.PI * (j - i)) / order.length);
      }
    }
    return sum;
  };
  let best = cost();
  for (let better = true; better;) {
    better = false;
    for (let i = 1; i < order.length; i += 1) {
      for (let j = i + 1; j < order.length; j += 1) {
        [order[i], order[j]] = [order[j], order[i]];
        const now = cost();
        if (now < best - 1e-12) {
          best = now;
          better = true;
        } else [order[i], order[j]] = [order[j], order[i]];
      }
    }
  }
  return order;
}

export const MEAN = "mean";

/** The matrix of a relation, attention or edge_weight; `layer` is a number as text, or MEAN. */
function matrixOf(network, kind, layer) {
  if (kind !== "attention") return network[kind];
  const layers = network.attention;
  if (layer !== MEAN) return layers[Number(layer)];
  return layers[0].map((row, i) =>
    row.map((_, j) => layers.reduce((sum, matrix) => sum + matrix[i][j], 0) / layers.length),
  );
}

/** How many windows have the edge. */
export function windowCount({ names, edge_windows: counts }, a, b) {
  return counts[names.indexOf(a)][names.indexOf(b)];
}

/** Both directions between two tissues: [{source, target, windows}], the strongest window first. */
export function windowsBehind(network, { a, b }) {
  const pairs = [
    [a, b],
    [b, a],
  ];
  const found = (source, target) =>
    network.strongest_windows.find((edge) => edge.source === source && edge.target === target);
  return pairs.map(([source, target]) => ({ source, target, windows: found(source, target)?.windows ?? [] }));
}

/** The pair of tissues whose windows are shown, or null. */
export function chosenPair({ relation, highlight, graph: { network } }) {
  return network && relation === "attention" && highlight?.kind === "interface" ? highlight : null;
}

/** Windows to mark on the slide: those behind the chosen edge, in either direction, each once. */
export function windowsShown(view) {
  const pair = chosenPair(view);
  const all = (pair ? windowsBehind(view.graph.network, pair) : []).flatMap((edge) => edge.windows);
  return [...new Map(all.map((window) => [`${window.top} ${window.left}`, window])).values()];
}

/**
 * What is drawn for a view: the tissue graph, and its nodes and edges with their labels; `learned` is the network whose
 * own relations the edges are, null where they are borders.
 */
export function graphShown(view) {
  const graph = tissueGraph(view.readings.graph, view.piece);
  const nodes = graph.nodes.map((node) => ({ ...node, label: `${titleOf(node.name)}, ${area(node.area)}` }));
  const learned = view.relation === "boundary" ? null : (view.graph.network ?? null);
  if (!learned) {
    const edges = graph.edges
      .filter((edge) => edge.a !== "outside" && edge.b !== "outside")
      .map((edge) => ({ ...edge, weight: edge.mm, label: `${edge.a} – ${edge.b}: ${length(edge.mm)}` }));
    return { graph, nodes, edges, learned };
  }
  // The network also relates what no tissue graph measures: the background, or a tissue that is not in the mask.
  const beside = notMeasured(learned, tissueGraph(view.graph, null));
  nodes.push(...beside.map((name) => ({ name, share: 0, label: `${titleOf(name)}, not measured` })));
  const names = [...graph.nodes.map((node) => node.name), ...beside];
  const label = ({ a, b, forth, back }) => `${a} → ${b} ${forth.toFixed(3)}, ${b} → ${a} ${back.toFixed(3)}`;
  const edges = networkGraph(learned, names, matrixOf(learned, view.relation, view.attentionLayer));
  return { graph, nodes, edges: edges.map((edge) => ({ ...edge, label: label(edge) })), learned };
}
