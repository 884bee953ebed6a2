// Which layer lies over the slide, the comparison of two versions, and the legend: which tissues, and how much of each.

import { html } from "../vendor/preact/preact.min.js";
import { capital, correctedWords, NOTHING_NAMED } from "./correct-words.js";
import { area, share } from "./format.js";
import { colourOf, inLegend } from "./palette.js";
import { isFromNothing, isSafe } from "./state.js";
import { Button, PanelHead, Segments, Slider } from "./ui.js";

const LAYERS = {
  corrected: "Corrected",
  tissue: "Tissue",
  coarse: "Coarse",
  confidence: "Confidence",
  improvement: "Improvement",
  none: "None",
};
const ALWAYS = ["none", "corrected"]; // these need no files of the slide
const EXPLAINED = ["coarse", "confidence"]; // listed with the reason where a slide does not have them
const COMPARE = { off: "Off", side: "Side by side", swipe: "Swipe" };
const WHY = "Available only for slides that were segmented here or with --maps";

/** What is compared, by the version that is shown: the layers, and a word for each. */
export const PAIRS = {
  tissue: {
    layers: ["coarse", "tissue"],
    words: ["Coarse", "Final"],
    note: "Coarse: from the coarse head. Final: the result.",
  },
  corrected: {
    layers: ["tissue", "corrected"],
    words: ["Network", "Corrected"],
    note: "Network: its own result. Corrected: with a person's corrections.",
  },
};

/** Where there is no network, the slide as it is stands beside what was named. */
const BARE = {
  layers: ["none", "corrected"],
  words: ["Slide", "Named"],
  note: "Slide: as it is. Named: with the tissues that were named.",
};
export const pairOf = (version) => (isFromNothing() ? BARE : PAIRS[version]);

const NOTES = {
  tissue: (store) => (store.active.length ? "The network's result, without corrections." : ""),
  corrected(store) {
    if (store.active.length) return `${capital(correctedWords(store))}.`;
    return isFromNothing() ? NOTHING_NAMED : "No corrections yet.";
  },
  coarse: () => "What the network's coarse head predicted.",
  improvement() {
    const [good, bad] = isSafe() ? ["blue", "orange"] : ["green", "red"];
    return `Where the final prediction corrected the coarse one (${good}) and where it made it wrong (${bad}).`;
  },
};

export const hasLayer = ({ geometry }, layer) => ALWAYS.includes(layer) || geometry.layers.includes(layer);
export const canCompare = (view) => hasLayer(view, pairOf(view.version).layers[0]);

export function Layers({ view }) {
  const { store, layer, compare, version } = view;
  const layers = Object.entries(LAYERS)
    .filter(([key]) => (isFromNothing() ? ALWAYS : [...view.geometry.layers, ...ALWAYS, ...EXPLAINED]).includes(key))
    .map(([key, text]) => {
      const disabled = !hasLayer(view, key);
      const hidden = key === "corrected" && !isFromNothing() && !store.active.length && layer !== "corrected";
      const name = key === "corrected" && isFromNothing() ? LAYERS.tissue : text;
      return { key, text: name, disabled, hidden, title: disabled ? WHY : "" };
    });
  const modes = Object.entries(COMPARE).map(([key, text]) => {
    const disabled = key !== "off" && !canCompare(view);
    return { key, text, disabled, title: disabled ? WHY : "" };
  });
  const percent = Math.round(view.opacity * 100);
  const note = compare === "off" ? (NOTES[layer]?.(store) ?? "") : pairOf(version).note;
  return html`<section class="layers">
    <${Segments} label="Layer" choices=${layers} value=${layer}
      onPick=${(key) => view.set({ layer: key, compare: key in PAIRS ? compare : "off" })} />
    <${Slider} label="Opacity" name="Opacity of the layer" range=${[0, 100, 5]} value=${percent} words=${`${percent} %`}
      disabled=${layer === "none"} onMove=${(value) => view.set({ opacity: value / 100 })} />
    <div class="line">
      <span>Compare</span>
      <${Segments} label="Compare two versions" choices=${modes} value=${compare}
        onPick=${(key) => view.set({ compare: key, layer: key === "off" ? layer : version })} />
    </div>
    <p class="small muted note" hidden=${!note}>${note}</p>
    <div class="ramp small muted" hidden=${layer !== "confidence"}>unsure<span />sure</div>
  </section>`;
}

export function toggleTissue(view, name) {
  const hidden = new Set(view.hidden);
  if (!hidden.delete(name)) hidden.add(name);
  view.set({ hidden, highlight: null });
}

/** Areas and shares of the piece that is shown, or of the whole slide. A correction may leave nothing of a piece. */
export function amountsOf({ readings: { summary }, piece }) {
  const of = piece === null ? summary : summary.pieces.find((entry) => entry.number === piece);
  return { areas: of?.areas_mm2 ?? {}, shares: of?.tissue_fractions ?? {} };
}

export function Legend({ view }) {
  const shown = inLegend();
  const names = shown.map((tissue) => tissue.name);
  const amounts = amountsOf(view);
  const hide = (hidden) => view.set({ hidden: new Set(hidden), highlight: null });

  /** Only this one; all again where it is the only one already. */
  function solo(name) {
    const others = names.filter((other) => other !== name);
    const already = !view.hidden.has(name) && others.every((other) => view.hidden.has(other));
    hide(already ? [] : others);
  }

  return html`<section>
    <${PanelHead} title="Tissues">
      <${Button} kind="small quiet" onClick=${() => hide([])}>All</${Button}>
      <${Button} kind="small quiet" onClick=${() => hide(names)}>None</${Button}>
    </${PanelHead}>
    <ul class="legend" aria-label="Tissues">
      ${shown.map(
        (tissue, index) =>
          html`<${LegendRow} key=${tissue.index} ...${{ tissue, index, view, amounts, solo }} />`,
      )}
    </ul>
  </section>`;
}

function LegendRow({ tissue: { name, title }, index, view, amounts, solo }) {
  const [mm2, part] = [amounts.areas[name] ?? 0, amounts.shares[name] ?? 0];
  return html`<li data-tissue=${name} class=${mm2 ? "" : "absent"} style=${{ "--share": String(part) }}>
    <label title=${index < 9 ? `${title}, key ${index + 1}` : title}>
      <input type="checkbox" checked=${!view.hidden.has(name)} onChange=${() => toggleTissue(view, name)} />
      <span class="dot" style=${{ background: colourOf(name) }} />
      ${name !== title && html`<span class="short">${name}</span>`}
      <span class="title">${title}</span>
    </label>
    <span class="number muted">${mm2 ? area(mm2) : "–"}</span>
    <${Button} kind="small quiet only" aria-label=${`Show only ${title}`} onClick=${() => solo(name)}>
      only
    </${Button}>
    <span class="number part">${mm2 ? share(part) : ""}</span>
  </li>`;
}
