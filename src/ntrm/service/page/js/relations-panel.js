// The relations beside the slide: the graph, what is chosen in it, and the same as a table for reading and keyboards.

import { html } from "../vendor/preact/preact.min.js";
import { capital } from "./correct-words.js";
import { area, count, length, share } from "./format.js";
import { Graph, samePair } from "./graph.js";
import { Dot, titleOf } from "./palette.js";
import { chosenPair, graphShown, MEAN, neighbours, windowCount, windowsBehind } from "./relations.js";
import { change, isDark, useObserved } from "./state.js";
import { Button, Facts, Segments } from "./ui.js";

const KINDS = { boundary: "Borders", attention: "Attention", edge_weight: "Edge weights" };
const FEW = 8;

/** Why a relation of the network cannot be shown; empty where it can. */
function whyNot(network, kind) {
  if (kind === "boundary") return "";
  if (!network) return "This model has no relation module";
  const there = kind === "attention" ? network.attention.length : network.edge_weight;
  return there ? "" : "Not used by this model";
}

export function Relations({ view }) {
  const { network } = view.graph;
  const { graph, nodes, edges, learned } = graphShown(view);
  const pick = (choice) => {
    const same = JSON.stringify(view.highlight) === JSON.stringify(choice);
    view.set({ highlight: same ? null : choice, window: null });
  };
  const theme = isDark() ? "dark" : "light";
  const kinds = Object.entries(KINDS).map(([key, text]) => {
    const title = whyNot(network, key);
    return { key, text, title, disabled: Boolean(title) };
  });
  const layers = (network?.attention ?? []).map((_, layer) => ({ key: String(layer), text: String(layer + 1) }));
  return html`<section class="relations">
    <${Segments} label="Relations" choices=${kinds} value=${view.relation}
      onPick=${(relation) => view.set({ relation })} />
    <${Segments} label="Layer of the attention" choices=${[{ key: MEAN, text: "All layers" }, ...layers]}
      value=${view.attentionLayer} hidden=${view.relation !== "attention" || layers.length < 2}
      onPick=${(attentionLayer) => view.set({ attentionLayer })} />
    <p class=${`small muted note ${learned ? "strong" : ""}`}>${noteOn(learned)}</p>
    <div class="graph-frame">
      ${nodes.length
        ? html`<${Graph} ...${{ nodes, edges, pick }} selected=${view.highlight} theme=${theme} />`
        : html`<p class="muted">No tissue here.</p>`}
    </div>
    <div class="reading" role="status">
      <${Reading} ...${{ view, graph, edges, learned }} onClear=${() => view.set({ highlight: null, window: null })} />
      <${EdgeWindows} view=${view} />
    </div>
    <${Table} ...${{ view, edges, learned, pick }} />
  </section>`;
}

const noteOn = (learned) =>
  learned
    ? `${capital(learned.note)}. Means over the windows that have the edge, of ${count(learned.windows, "window")} ` +
      "of the whole slide; node size is area."
    : "Node size is area, edge width is border length. Click to highlight on the slide.";

/** What is chosen, in numbers. */
function Reading({ view, graph, edges, learned, onClear }) {
  const choice = view.highlight;
  if (!choice) return null;
  const names = choice.kind === "tissue" ? [choice.name] : [choice.a, choice.b];
  const rows = choice.kind === "tissue" ? tissueRows(graph, choice.name) : pairRows(edges, choice, learned);
  return html`<div class="panel-head">
      ${names.map((name) => html`<${Dot} key=${name} of=${name} />`)}
      <h3>${choice.kind === "tissue" ? titleOf(choice.name) : names.join(" – ")}</h3>
      <span class="grow" />
      <${Button} kind="small quiet" onClick=${onClear}>Clear</${Button}>
    </div>
    ${rows ? html`<${Facts} rows=${rows} />` : html`<p class="muted">Not in this piece.</p>`}`;
}

function tissueRows(graph, name) {
  const node = graph.nodes.find((entry) => entry.name === name);
  if (!node) return null;
  const near = neighbours(graph, name).slice(0, 4);
  return [
    ["Area", `${area(node.area)} (${share(node.share)} of the tissue)`],
    ["Border", length(node.boundary)],
    ["Regions", node.regions],
    ...near.map((entry) => [
      entry.name === "outside" ? "borders on the outside" : `borders on ${titleOf(entry.name)}`,
      `${length(entry.mm)} (${share(entry.share)})`,
    ]),
  ];
}

function pairRows(edges, choice, learned) {
  const edge = edges.find((entry) => samePair(choice, entry));
  if (!edge) return null;
  const { a, b } = edge;
  const mean = (value, windows) => `${value.toFixed(4)} · ${count(windows, "window")}`;
  if (learned)
    return [
      [`${a} → ${b}`, mean(edge.forth, windowCount(learned, a, b))],
      [`${b} → ${a}`, mean(edge.back, windowCount(learned, b, a))],
    ];
  return [
    ["Border", length(edge.mm)],
    [`of the border of ${a}`, share(edge.shareA)],
    [`of the border of ${b}`, share(edge.shareB)],
    ["Contacts", edge.contacts],
  ];
}

/** The windows behind an edge, as buttons that go there. */
function EdgeWindows({ view }) {
  const pair = chosenPair(view);
  const lists = pair ? windowsBehind(view.graph.network, pair).filter((edge) => edge.windows.length) : [];
  if (!lists.length) return null;
  const place = (window, index, words) =>
    html`<${Button} kind="small quiet number"
      aria-pressed=${window === view.window}
      aria-label=${`Window ${index + 1} of ${words}, attention ${window.attention.toFixed(3)}`}
      onClick=${() => view.goToWindow(window)}
    >
      ${window.attention.toFixed(2)}
    </${Button}>`;
  return html`<div class="edge-windows">
    <p class="small muted">
      Windows with the highest attention, over all layers; 1.00 if there is only one sender. Click to go there.
    </p>
    ${lists.map(({ source, target, windows }) => {
      const words = `${source} → ${target}`;
      return html`<div key=${words} class="edge-direction">
        <span>${words}</span>
        <span class="edge-places">${windows.map((window, index) => place(window, index, words))}</span>
      </div>`;
    })}
  </div>`;
}

function Table({ view, edges, learned, pick }) {
  const table = useObserved({ all: false });
  const more = () => change(table, { all: !table.all });
  const heads = learned ? ["Pair", "→", "←", "Windows"] : ["Interface", "Border", "Contacts"];
  const values = (edge) =>
    learned
      ? [edge.forth.toFixed(3), edge.back.toFixed(3), edge.windows]
      : [length(edge.mm), edge.contacts];
  const row = (edge) => {
    const { a, b } = edge;
    const chosen = view.highlight?.kind === "interface" && samePair(view.highlight, edge);
    return html`<tr key=${`${a}-${b}`} aria-selected=${chosen}>
      <td>
        <button type="button" class="link" onClick=${() => pick({ kind: "interface", a, b })}>
          <${Dot} of=${a} />${a}${" – "}<${Dot} of=${b} />${b}
        </button>
      </td>
      ${values(edge).map((value) => html`<td class="number">${value}</td>`)}
    </tr>`;
  };
  return html`<div>
    <table class="numbers">
      <thead><tr>${heads.map((head) => html`<th scope="col">${head}</th>`)}</tr></thead>
      <tbody>${(table.all ? edges : edges.slice(0, FEW)).map(row)}</tbody>
    </table>
    ${edges.length > FEW && html`<${Button} kind="small quiet" onClick=${more}>
      ${table.all ? "Fewer" : `All ${edges.length}`}
    </${Button}>`}
  </div>`;
}
