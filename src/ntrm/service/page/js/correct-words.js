// What the page says about corrections.

import { html } from "../vendor/preact/preact.min.js";
import { area, count } from "./format.js";
import { Dot, titleOf } from "./palette.js";
import { isFromNothing, page } from "./state.js";

export const NOTHING_NAMED = "Nothing is named yet: choose a tissue and click or brush.";

/** A part or region in one line, for the readout beside the pointer. */
export const partLine = (part, reason = "") =>
  html`<${Dot} of=${part.tissue} />
    <strong>${part.tissue ? titleOf(part.tissue) : "Nothing known"}</strong>
    <span class="number muted">${area(part.area_mm2)}</span>
    ${!isFromNothing() && part.network_tissue !== part.tissue &&
      html`<span class="muted">network: ${part.network_tissue}</span>`}
    ${part.by_hand && html`<span class="muted">named by a person</span>`}
    ${reason && html`<span>${reason}</span>`}`;

/** The same as text. */
export const partText = (part) => `${titleOf(part.tissue)}, ${area(part.area_mm2)}`;

/** A step of the log in a few words. */
export function stepWords({ action, tissue, regions, area_mm2: mm2, of }) {
  if (action === "undo") return `step ${of} was undone`;
  if (action === "redo") return `step ${of} was redone`;
  const what = action === "draw" || !regions ? "drawn" : count(regions, "part");
  return `${titleOf(tissue)}, ${what}, ${area(mm2)}`;
}

/** The latest step. */
export function lastStep({ document }) {
  const step = document?.steps.at(-1);
  return step ? capital(stepWords(step)) : "Nothing was corrected";
}

/** Why something was not done. `writing`: it was to be written. */
export function refusalWords(error, store, writing) {
  if (error.isConflict) {
    const step = store.document?.steps.at(-1);
    const who = step?.by ? ` by ${step.by}` : "";
    const what = step ? `: step ${step.number}${who}, ${stepWords(step)}` : "";
    return `Corrected elsewhere${what}. Your choice was not written.`;
  }
  const why = error.text ?? "The server does not answer.";
  return writing ? `Not written. ${capital(why)}` : capital(why);
}

/** "corrected by a person, n parts", or nothing. */
export function correctedWords(store) {
  const steps = store.active;
  const parts = store.document?.regions ?? 0;
  return steps.length ? `corrected by a person, ${count(parts, "part")}` : "";
}

/** How far the results with the corrections are. */
export function resultWords(store) {
  if (!store.active.length) return "";
  const what = "Numbers, mask and report with the corrections";
  if (store.document.corrected) return `${what} are written.`;
  const reason = store.document.corrected_reason;
  return reason ? `${what} could not be written: ${reason}.` : `${what} are being written.`;
}

/** The model of a result, or the server's words where there was none. */
export const modelWords = ({ model }) => (model ? `model ${model.name} ${model.version}` : page.about.model.name);

export const capital = (text) => (text ? text[0].toUpperCase() + text.slice(1) : "");
