// The panel of the mode "Correct": what is missing, tools, tissues with their keys, what is chosen, what was done.

import { html } from "../vendor/preact/preact.min.js";
import { ChoiceBox } from "./correct-box.js";
import { TissueForm } from "./correct-classes.js";
import { WIDTHS } from "./correct-strokes.js";
import { capital, NOTHING_NAMED, resultWords, stepWords } from "./correct-words.js";
import { moment } from "./format.js";
import { colourOf, Dot, tissues } from "./palette.js";
import { change, isFromNothing, prefs, useObserved } from "./state.js";
import { Button, classNames, Icon, IconButton, PanelHead, Progress, Segments, Slider, Tick } from "./ui.js";

export const KEYS = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "q", "y", "h", "j"];
const TOOLS = [
  { key: "pick", text: "Pick", title: "Click parts; Shift adds (v)" },
  { key: "lasso", text: "Lasso", title: "Draw around parts (a)" },
  { key: "brush", text: "Brush", title: "Paint where a border is wrong (f)" },
  { key: "divide", text: "Divide", title: "Draw a line through a region (k)" },
];
/** How far what follows may be; the slider's steps are quarters of a doubling. */
export const REACH = { least: 0.25, most: 4 };
const DOUBLINGS = [Math.log2(REACH.least), Math.log2(REACH.most), 0.25];

/** Tissues that a person can name, in the order of their keys: as in the legend, the background last. */
export const byKey = () =>
  tissues()
    .filter((tissue) => !tissue.unnamed)
    .sort((one, other) => one.background - other.background)
    .map((tissue, index) => ({ ...tissue, key: KEYS[index] ?? "" }));

const INTRODUCED =
  "Pick a part of the slide and name its tissue. Similar parts can follow. The network's result is kept.";

export function CorrectPanel({ view: { correct } }) {
  const { isOn } = correct;
  return html`<section class="correct">
    <div class="correct-intro" hidden=${isOn}>
      <p class="muted">
        ${isFromNothing() ? NOTHING_NAMED : INTRODUCED}
      </p>
      <${Button} kind="primary" onClick=${() => correct.toggle()}>
        ${isFromNothing() ? "Name its tissues" : "Correct this slide"}
      </${Button}>
    </div>
    <div class="correct-work" hidden=${!isOn}>
      <${GraphState} correct=${correct} />
      <${Tools} correct=${correct} />
      <${ChoiceBox} correct=${correct} />
      <${Names} correct=${correct} />
    </div>
    <${History} correct=${correct} />
  </section>`;
}

function Tools({ correct, correct: { choice, settings, store } }) {
  const { tool, only, revise, reach, width } = settings;
  const { isReady } = store;
  const paints = tool === "brush" || tool === "divide";
  const units = [
    { key: "part", text: "Part", title: "A small part of a region (r)", disabled: !(isReady || isFromNothing()) },
    { key: "region", text: "Whole region", title: "The connected region of the network's mask (r)" },
  ];
  return html`<div class="correct-tools">
    <${Segments} label="Tool" choices=${TOOLS} value=${tool} onPick=${(key) => correct.set({ tool: key })} />
    <div class="unit-line" hidden=${paints}>
      <${Segments} label="What a click picks" choices=${units} value=${choice.takesWhole ? "region" : "part"}
        onPick=${(key) => correct.set({ whole: key === "region" })} />
      <${Tick} label="Name only what I picked" checked=${only || !isReady} disabled=${!isReady}
        onTick=${(checked) => correct.set({ only: checked })} />
      ${!only && isReady && html`<${Tick} label="Change earlier followers, too" checked=${revise}
        onTick=${(checked) => correct.set({ revise: checked })} />`}
    </div>
    <${Slider} label="How far" range=${DOUBLINGS} value=${Math.log2(reach)} words=${`× ${Number(reach.toPrecision(2))}`}
      hidden=${paints || only || !isReady} onMove=${(doublings) => correct.set({ reach: 2 ** doublings })} />
    <${Slider} label="Brush" range=${[WIDTHS.least, WIDTHS.most, 10]} value=${width} words=${`${width} µm`}
      hidden=${tool !== "brush"} onMove=${(um) => correct.set({ width: um })} />
  </div>`;
}

/** All tissues as buttons with their keys. */
function Names({ correct, correct: { choice, settings } }) {
  const form = useObserved({ of: null }); // the index of the tissue that is changed, or "new"
  const chosen = choice.name ?? settings.brush;
  const edit = (of) => () => change(form, { of });
  return html`<div class=${classNames("names", { open: isFromNothing() })} role="group" aria-label="Name it">
    ${byKey().map((tissue) => {
      const { index, name } = tissue;
      return form.of === index
        ? html`<${TissueForm} key=${index} ...${{ tissue, correct }} close=${edit(null)} />`
        : html`<${Name} key=${index} ...${{ tissue, correct }} isChosen=${name === chosen} edit=${edit(index)} />`;
    })}
    ${form.of === "new" && html`<${TissueForm} key="new" correct=${correct} close=${edit(null)} />`}
    ${isFromNothing() && form.of !== "new" &&
      html`<${Button} key="add" kind="small add" onClick=${edit("new")}><${Icon} name="plus" />Tissue</${Button}>`}
  </div>`;
}

const Name = ({ tissue: { name, title, key, background }, correct, isChosen, edit }) =>
  html`<button type="button" title=${key ? `${title}, key ${key}` : title} data-name=${name} aria-pressed=${isChosen}
      onClick=${() => correct.nameFromList(name)}>
      <kbd aria-hidden="true">${key}</kbd>
      <span class="dot" style=${{ background: colourOf(name) }} />
      <span class="short">${name}</span>
      ${name !== title && html`<span class="title">${title}</span>`}
    </button>
    ${isFromNothing() && !background &&
      html`<${IconButton} name="correct" label=${`Name and colour of ${name}`} onClick=${edit} />`}`;

const meanwhile = () =>
  `You can name ${isFromNothing() ? "places" : "whole regions"} and use brush and dividing line, but nothing follows`;

/** Whether others can follow, and what works until then. */
function GraphState({ correct, correct: { store } }) {
  const { document, error, isReady } = store;
  return html`<div class="graph-state" role="status" hidden=${isReady && !error}>
    ${error && html`<p class="missing">${error.text}</p>`}
    ${!error && !document && html`<p class="muted">The server has not answered yet.</p>`}
    ${!error && document && !isReady && html`<${Unready} correct=${correct} />`}
  </div>`;
}

function Unready({ correct }) {
  const { graph, graph_progress: progress, graph_reason: reason } = correct.store.document;
  if (graph === "impossible" || graph === "missing")
    return html`<p class="missing">Parts of this slide are not known${reason ? `: ${reason}` : ""}.</p>
      <p class="small muted">${meanwhile()}.</p>
      ${
        graph === "missing" &&
        html`<${Button} kind="small" onClick=${() => correct.makeGraph()}>Try again</${Button}>`
      }`;
  const percent = Math.floor((progress ?? 0) * 100);
  const waits = graph === "waiting";
  return html`<p>${waits ? "The texture of the slide waits to be read." : `Reading the texture: ${percent} %`}</p>
    <${Progress} label="Reading the texture" percent=${percent} busy=${waits || !percent} />
    <p class="small muted">${meanwhile()} yet. This happens once for each slide.</p>`;
}

const INITIALS = 8; // characters that the log takes
const FEW = 30; // steps that are listed

/** The steps of the log: what was done, undo and redo, and who does it. */
function History({ correct: { store, writer } }) {
  const { document } = store;
  const steps = (document?.steps ?? []).filter((step) => step.action === "name" || step.action === "draw");
  const note = resultWords(store);
  const rest = steps.length - FEW;
  return html`<div class="history">
    <${PanelHead} title="Steps">
      <${IconButton} name="undo" label="Undo (z)" disabled=${!document?.undo} onClick=${() => writer.undo()} />
      <${IconButton} name="redo" label="Redo (Shift z)" disabled=${!document?.redo} onClick=${() => writer.redo()} />
    </${PanelHead}>
    <p class="small muted" hidden=${!note}>${note}</p>
    <p class="small muted" hidden=${steps.length > 0}>${isFromNothing() ? "No steps yet." : "Nothing was corrected."}</p>
    <ol class="steps">
      ${steps
        .reverse()
        .slice(0, FEW)
        .map((step) => html`<${Step} key=${step.number} step=${step} writer=${writer} />`)}
      ${rest > 0 && html`<li class="muted">and ${rest} before these, in corrections.jsonl</li>`}
    </ol>
    <label class="initials small">
      Initials, optional: written with each step
      <input class="field" maxlength=${INITIALS} value=${prefs.initials} autocomplete="off" spellcheck=${false}
        onInput=${({ target }) => change(prefs, { initials: target.value.trim() })} />
    </label>
  </div>`;
}

function Step({ step, writer }) {
  const { number, active, tissue, when, by } = step;
  return html`<li class=${active ? "" : "undone"} data-step=${number}>
    <span class="number muted">${number}</span>
    <${Dot} of=${tissue} />
    <span class="words">
      ${capital(stepWords(step))}<span class="muted">${` ${[moment(when), by].filter(Boolean).join(", ")}`}</span>
    </span>
    ${active
      ? html`<${Button} kind="small quiet"
          aria-label=${`Undo step ${number} and what came after it`} title="Undo this and what came after it"
          onClick=${() => writer.undoTo(number)}>Undo to here</${Button}>`
      : html`<span class="muted small">undone</span>`}
  </li>`;
}
