// Draws the tissue graph: the size of a node is its area, the width of an edge the length of the shared border.

import { html } from "../vendor/preact/preact.min.js";
import { colourOf, inkOn } from "./palette.js";
import { circleOrder } from "./relations.js";

const WIDTH = 340;
const HEIGHT = 290;
const RING = 104;
const WIDEST = 11;
const BEND = 0.12; // of an edge towards the middle
const INKS = {
  dark: { ink: "#e6eaed", line: "#94a2ac", accent: "#6fc0da", ground: "#1b2024" },
  light: { ink: "#1b2227", line: "#7b8892", accent: "#14607a", ground: "#ffffff" },
};

/** Radius of a node: its area is drawn as an area, but no node is too small to be hit. */
const radius = (share) => 8 + 26 * Math.sqrt(share);

/** Whether two edges, or what was chosen of them, are between the same tissues. */
export const samePair = (one, other) =>
  (one.a === other.a && one.b === other.b) || (one.a === other.b && one.b === other.a);

/**
 * `nodes` have name, share and label, `edges` a, b, weight and label. `pick(choice)` is called with
 * { kind: "tissue", name } or { kind: "interface", a, b }. Colours stand in the drawing itself, so that it looks the
 * same wherever it is saved.
 */
export function Graph({ nodes, edges, selected = null, pick = null, theme }) {
  const inks = INKS[theme];
  const places = placesOf(nodes, edges);
  const most = Math.max(...edges.map((edge) => edge.weight), Number.EPSILON);
  // Thin edges, last in the list, are drawn first, so that the strong ones lie above them.
  return html`<svg class="graph" viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} role="group" aria-label="Tissue graph"
    font-family="system-ui, sans-serif">
    ${[...edges].reverse().map(
      (edge) =>
        html`<${Edge} key=${`${edge.a}-${edge.b}`} ...${{ edge, places, selected, pick, inks }}
          width=${(WIDEST * edge.weight) / most} />`,
    )}
    ${nodes.map(
      (node) => html`<${Node} key=${node.name} place=${places.get(node.name)} ...${{ node, selected, pick, inks }} />`,
    )}
  </svg>`;
}

function placesOf(nodes, edges) {
  const between = new Map(edges.map((edge) => [`${edge.a}\n${edge.b}`, edge.weight]));
  const weight = (a, b) => between.get(`${a}\n${b}`) ?? between.get(`${b}\n${a}`) ?? 0;
  const order = circleOrder(
    nodes.map((node) => node.name),
    weight,
  );
  return new Map(
    order.map((name, index) => {
      const angle = (2 * Math.PI * index) / order.length - Math.PI / 2;
      return [name, { angle, x: WIDTH / 2 + RING * Math.cos(angle) * 1.12, y: HEIGHT / 2 + RING * Math.sin(angle) }];
    }),
  );
}

function Edge({ edge, places, width, selected, pick, inks }) {
  const { a, b } = edge;
  const [from, to] = [places.get(a), places.get(b)];
  const x = ((from.x + to.x) / 2) * (1 - BEND) + (WIDTH / 2) * BEND;
  const y = ((from.y + to.y) / 2) * (1 - BEND) + (HEIGHT / 2) * BEND;
  const point = (...axes) => axes.map((axis) => axis.toFixed(1)).join(" ");
  const d = `M${point(from.x, from.y)}Q${point(x, y)} ${point(to.x, to.y)}`;
  const chosen = selected?.kind === "interface" && samePair(edge, selected);
  const touched = selected?.kind === "tissue" && [a, b].includes(selected.name);
  return html`<g class="edge" data-edge=${`${a}-${b}`}>
    <title>${edge.label}</title>
    <path d=${d} fill="none" stroke=${chosen ? inks.accent : inks.line} stroke-width=${Math.max(0.8, width).toFixed(2)}
      stroke-opacity=${chosen ? 1 : touched || !selected ? 0.75 : 0.15} stroke-linecap="round" pointer-events="none" />
    ${pick && html`<path class="hit" d=${d} fill="none" stroke="transparent" stroke-width=${Math.max(12, width + 4)}
      onClick=${() => pick({ kind: "interface", a, b })} />`}
  </g>`;
}

function Node({ node, place: { x, y, angle }, selected, pick, inks }) {
  const { name, label } = node;
  const size = radius(node.share);
  const colour = colourOf(name);
  const chosen = Boolean(selected) && [selected.name, selected.a, selected.b].includes(name);
  const opacity = selected && !chosen ? 0.5 : null;
  const inside = size > 15;
  const [across, down] = inside ? [0, 0] : [Math.cos(angle), Math.sin(angle)];
  const round = { cx: x, cy: y, r: size.toFixed(1) };
  const border = chosen ? [inks.accent, 3, null] : [inks.ink, null, 0.45];
  return html`<g class="node" data-node=${name} ...${pick && acts(pick, name, label, chosen)}>
    <title>${label}</title>
    ${opacity && html`<circle ...${round} fill=${inks.ground} />`}
    <circle ...${round} fill=${colour} stroke=${border[0]} stroke-width=${border[1]} stroke-opacity=${border[2]}
      opacity=${opacity} />
    <text x=${x + across * (size + 6)} y=${y + down * (size + 10) + 4}
      text-anchor=${across > 0.3 ? "start" : across < -0.3 ? "end" : "middle"} font-size="11" font-weight="600"
      pointer-events="none" fill=${inside ? inkOn(colour) : inks.ink} opacity=${opacity}>${name}</text>
  </g>`;
}

/** A node can be chosen by pointer and by keyboard. */
function acts(pick, name, label, chosen) {
  const onClick = () => pick({ kind: "tissue", name });
  const onKeyDown = (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    onClick();
  };
  return { role: "button", tabindex: 0, "aria-pressed": chosen, "aria-label": label, onClick, onKeyDown };
}
