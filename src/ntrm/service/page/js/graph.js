// Draws the tissue graph: the size of a node is its area, the width of an edge the length of the shared border.

import { put, s } from "./dom.js";
import { colourOf, inkOn } from "./palette.js";
import { circleOrder } from "./relations.js";

const WIDTH = 340;
const HEIGHT = 290;
const RING = 104;
const WIDEST = 11;

/** Radius of a node: its area is drawn as an area, but no node is too small to be hit. */
const radius = (share) => 8 + 26 * Math.sqrt(share);

/**
 * An SVG. `nodes` have name and share, `edges` a, b, weight and label. `pick(selection)` is called with
 * {kind: "tissue", name} or {kind: "interface", a, b}. `colours` are ink and line, written into the file, so that a
 * saved drawing looks the same anywhere.
 */
export function drawGraph({ nodes, edges, selected = null, pick = null, colours }) {
  const between = new Map(edges.map((edge) => [`${edge.a}\n${edge.b}`, edge.weight]));
  const weight = (a, b) => between.get(`${a}\n${b}`) ?? between.get(`${b}\n${a}`) ?? 0;
  const names = nodes.map((node) => node.name);
  const order = circleOrder(names, weight);
  const place = new Map(
    order.map((name, index) => {
      const angle = (2 * Math.PI * index) / order.length - Math.PI / 2;
      return [name, { angle, x: WIDTH / 2 + RING * Math.cos(angle) * 1.12, y: HEIGHT / 2 + RING * Math.sin(angle) }];
    }),
  );
  const most = Math.max(...edges.map((edge) => edge.weight), Number.EPSILON);
  const svg = s("svg.graph", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    role: "group",
    "aria-label": "Tissue graph",
    "font-family": "system-ui, sans-serif",
  });
  const isOn = (edge) =>
    !selected ||
    (selected.kind === "interface" ? same(edge, selected) : edge.a === selected.name || edge.b === selected.name);
  // Thin edges last in the list are drawn first, so that the strong ones lie above them.
  for (const edge of [...edges].reverse())
    svg.append(drawEdge(edge, place, (WIDEST * edge.weight) / most, isOn(edge), selected, pick, colours));
  nodes.forEach((node) => svg.append(drawNode(node, place.get(node.name), selected, pick, colours)));
  return svg;
}

const same = (edge, pair) => (edge.a === pair.a && edge.b === pair.b) || (edge.a === pair.b && edge.b === pair.a);

function drawEdge(edge, place, width, on, selected, pick, colours) {
  const [from, to] = [place.get(edge.a), place.get(edge.b)];
  const bend = 0.12;
  const middle = [
    ((from.x + to.x) / 2) * (1 - bend) + (WIDTH / 2) * bend,
    ((from.y + to.y) / 2) * (1 - bend) + (HEIGHT / 2) * bend,
  ];
  const point = (x, y) => `${x.toFixed(1)} ${y.toFixed(1)}`;
  const d = `M${point(from.x, from.y)}Q${point(...middle)} ${point(to.x, to.y)}`;
  const chosen = selected?.kind === "interface" && same(edge, selected);
  const line = s("path", {
    d,
    fill: "none",
    stroke: chosen ? colours.accent : colours.line,
    "stroke-width": Math.max(0.8, width).toFixed(2),
    "stroke-opacity": on ? (chosen ? 1 : 0.75) : 0.15,
    "stroke-linecap": "round",
    "pointer-events": "none",
  });
  const group = s("g.edge", { "data-edge": `${edge.a}-${edge.b}` }, s("title", edge.label), line);
  if (pick) {
    const click = () => pick({ kind: "interface", a: edge.a, b: edge.b });
    const wide = { stroke: "transparent", "stroke-width": Math.max(12, width + 4) };
    group.append(s("path.hit", { d, fill: "none", ...wide, on: { click } }));
  }
  return group;
}

function drawNode(node, { x, y, angle }, selected, pick, colours) {
  const size = radius(node.share);
  const colour = colourOf(node.name);
  const chosen =
    selected &&
    (selected.kind === "tissue" ? selected.name === node.name : [selected.a, selected.b].includes(node.name));
  const inside = size > 15;
  const faint = selected && !chosen;
  const opacity = faint ? 0.5 : null;
  const [across, down] = inside ? [0, 0] : [Math.cos(angle), Math.sin(angle)];
  const anchor = across > 0.3 ? "start" : across < -0.3 ? "end" : "middle";
  const place = { x: x + across * (size + 6), y: y + down * (size + 10) + 4, "text-anchor": anchor };
  const font = { "font-size": 11, "font-weight": 600, "pointer-events": "none" };
  const text = s("text", { ...place, ...font, fill: inside ? inkOn(colour) : colours.ink, opacity }, node.name);
  const round = { cx: x, cy: y, r: size.toFixed(1) };
  const plain = { stroke: colours.ink, "stroke-opacity": 0.45 };
  const border = chosen ? { stroke: colours.accent, "stroke-width": 3 } : plain;
  const circle = s("circle", { ...round, fill: colour, ...border, opacity });
  const under = faint ? s("circle", { ...round, fill: colours.ground }) : null;
  const group = s("g.node", { "data-node": node.name }, s("title", node.label), under, circle, text);
  if (!pick) return group;
  const click = () => pick({ kind: "tissue", name: node.name });
  const keydown = (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    click();
  };
  const words = { "aria-pressed": String(Boolean(chosen)), "aria-label": node.label };
  put(group, { role: "button", tabindex: 0, ...words, on: { click, keydown } });
  return group;
}
