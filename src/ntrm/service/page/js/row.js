// One slide in the list.

import { html } from "../vendor/preact/preact.min.js";
import * as api from "./api.js";
import { notAssessed, UnlikeChip } from "./familiarity.js";
import { area, confidence, count, moment } from "./format.js";
import { colourOf, Dot, titleOf } from "./palette.js";
import { change, useObserved } from "./state.js";
import { Button, Icon, IconButton, Progress } from "./ui.js";

const WORDS = { queued: "Waiting", running: "Segmenting", done: "Done", failed: "Failed", cancelled: "Cancelled" };

const NO_CLASS = "No class is called BCC, SCC or IEC";

/** Cancer types as chips of a slide that is done; says so where none was found. */
export function CancerChips({ of: slide }) {
  const looked = slide.cancers ?? [];
  const found = looked.filter((cancer) => cancer.present);
  if (!looked.length) return html`<span class="chip muted" title=${NO_CLASS}>No cancer looked for</span>`;
  if (notAssessed(slide)) return html`<span class="chip muted">Cancers not assessed</span>`;
  if (!found.length) return html`<span class="chip muted">No cancer found</span>`;
  return found.map(
    ({ name, confidence: sure }) =>
      html`<span key=${name} class="chip" title=${`${titleOf(name)}, confidence ${confidence(sure)}`}>
        <${Dot} of=${name} />${name}<span class="muted number">${confidence(sure)}</span>
      </span>`,
  );
}

/** Whether a person corrected a slide, for lists and searches; empty where nobody did. */
export function correctedWords(slide) {
  return slide.corrections ? `Corrected, ${count(slide.corrections, "step")}` : "";
}

/** Shares of the tissues as one bar. */
function TissueBar({ slide }) {
  const parts = (slide.tissue ?? []).filter((tissue) => tissue.share > 0);
  const words = [...parts]
    .sort((a, b) => b.share - a.share)
    .map((part) => `${titleOf(part.name)} ${Math.round(part.share * 100)} %`)
    .join(", ");
  const part = ({ name, share }) => html`<span style=${{ flexGrow: String(share), background: colourOf(name) }} />`;
  return html`<div class="tissue-bar" role="img" aria-label=${words} title=${words}>${parts.map(part)}</div>`;
}

/** What a slide that is not done is at. */
export function statusWords(slide) {
  if (slide.status === "queued" && slide.queue_position) return `Waiting, number ${slide.queue_position} in the queue`;
  if (slide.status === "running")
    return `${Math.floor((slide.progress ?? 0) * 100)} %${slide.stage ? ` · ${slide.stage}` : ""}`;
  return WORDS[slide.status] ?? slide.status;
}

const NO_STEPS = ["reading", "waiting", "measuring"];

/** How far a slide is; where a stage has no steps to count, a light runs through the bar. */
export function SlideProgress({ slide, label, wide }) {
  const percent = Math.floor((slide.progress ?? 0) * 100);
  const runs = slide.status === "running";
  const words = runs ? `${percent} %, ${slide.stage}` : "waiting";
  const busy = runs && (NO_STEPS.includes(slide.stage) || percent <= 3);
  return html`<${Progress} ...${{ label, percent, words, busy, wide }} />`;
}

/** The reason of a failure as text. */
export function failure(slide) {
  return slide.error ? new api.ApiError(0, slide.error).text : "";
}

export const isMoving = ({ status }) => status === "queued" || status === "running";

/** What the button is called that queues a slide again. */
export const retryWords = (slide) => (slide.error?.code === "mpp_missing" ? "Enter µm/px" : "Try again");

/** A row of the list; `acts` has cancel, retry and remove, each called with the slide. */
export function Row({ slide, acts }) {
  const facts = [
    slide.tissue_area_mm2 && `${area(slide.tissue_area_mm2)} tissue`,
    slide.pieces && count(slide.pieces, "piece"),
    moment(slide.finished ?? slide.created),
  ];
  return html`<li class="row" data-status=${slide.status} data-id=${slide.id}>
    <${Thumbnail} slide=${slide} />
    <div class="who">
      <a class="name" href=${`#/slide/${encodeURIComponent(slide.id)}`}>${slide.name || slide.slide_id}</a>
      <div class="facts muted small">${facts.filter(Boolean).join(" · ")}</div>
    </div>
    <div class="findings"><${Findings} slide=${slide} /></div>
    <div class="status small">
      <span class=${`words ${slide.status}`}>${statusWords(slide)}</span>
      ${isMoving(slide) && html`<${SlideProgress} slide=${slide} label=${`Progress of ${slide.name}`} />`}
    </div>
    <div class="row-actions"><${Actions} slide=${slide} acts=${acts} /></div>
  </li>`;
}

function Findings({ slide }) {
  if (slide.status === "failed") return html`<p class="reason">${failure(slide)}</p>`;
  if (slide.status !== "done") return null;
  const warnings = slide.quality_warnings ?? [];
  return html`<div class="chips">
      <${UnlikeChip} slide=${slide} />
      <${CancerChips} of=${slide} />
      ${slide.corrections > 0 &&
        html`<span class="chip corrected"><${Icon} name="correct" />${correctedWords(slide)}</span>`}
      ${warnings.map(
        (warning) => html`<span class="chip warn" title="Quality warning"><${Icon} name="warn" />${warning}</span>`,
      )}
      ${!warnings.length && html`<span class="muted small">no quality warnings</span>`}
    </div>
    <${TissueBar} slide=${slide} />`;
}

/** The slide's picture, or an icon where there is none. */
function Thumbnail({ slide }) {
  const state = useObserved({ failed: "" });
  const readable = slide.status !== "failed" || slide.error?.code === "mpp_missing";
  const source = slide.status === "done" || (slide.has_image && readable) ? api.picture(slide) : "";
  const fail = () => change(state, { failed: source });
  return html`<div class="thumbnail">
    ${source && state.failed !== source
      ? html`<img alt="" loading="lazy" decoding="async" src=${source} onError=${fail} />`
      : html`<${Icon} name="slides" />`}
  </div>`;
}

function Actions({ slide, acts }) {
  const named = (words, act) =>
    html`<${Button} kind="small" aria-label=${`${words} ${slide.name}`} onClick=${() => act(slide)}>
      ${words}
    </${Button}>`;
  if (isMoving(slide)) return named("Cancel", acts.cancel);
  return html`${slide.status !== "done" && named(retryWords(slide), acts.retry)}
    <${IconButton} name="bin" label="Delete" class="icon-button quiet" aria-label=${`Delete ${slide.name}`}
      onClick=${() => acts.remove(slide)} />`;
}
