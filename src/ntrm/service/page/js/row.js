// One slide in the list. A row is made once and then kept up to date, so that focus and pictures stay.

import * as api from "./api.js";
import { button, h, icon, iconButton, progressBar, put, setText } from "./dom.js";
import { notAssessed, unlikeChip } from "./familiarity.js";
import { area, confidence, count, moment } from "./format.js";
import { colourOf, dotOf, titleOf } from "./palette.js";

const WORDS = { queued: "Waiting", running: "Segmenting", done: "Done", failed: "Failed", cancelled: "Cancelled" };

const NO_CLASS = "The model has no class called BCC, SCC or IEC";

/** Cancer types as chips of a slide that is done; says so where none was found. */
export function cancerChips(slide) {
  const looked = slide.cancers ?? [];
  const found = looked.filter((cancer) => cancer.present);
  if (!looked.length) return [h("span.chip.muted", { title: NO_CLASS }, "No cancer looked for")];
  if (notAssessed(slide)) return [h("span.chip.muted", "Cancers not assessed")];
  if (!found.length) return [h("span.chip.muted", "No cancer found")];
  return found.map((cancer) =>
    h(
      "span.chip",
      { title: `${titleOf(cancer.name)}, confidence ${confidence(cancer.confidence)}` },
      dotOf(cancer.name),
      cancer.name,
      h("span.muted.number", confidence(cancer.confidence)),
    ),
  );
}

/** Whether a person corrected a slide, for lists and searches; empty where nobody did. */
export function correctedWords(slide) {
  return slide.corrections ? `Corrected, ${count(slide.corrections, "step")}` : "";
}

/** Shares of the tissues as one bar. */
function tissueBar(slide) {
  const parts = (slide.tissue ?? []).filter((tissue) => tissue.share > 0);
  const words = [...parts]
    .sort((a, b) => b.share - a.share)
    .map((part) => `${titleOf(part.name)} ${Math.round(part.share * 100)} %`)
    .join(", ");
  return h(
    "div.tissue-bar",
    { role: "img", "aria-label": words, title: words },
    parts.map((part) => h("span", { style: { "flex-grow": part.share, background: colourOf(part.name) } })),
  );
}

/** What a slide that is not done is at. */
export function statusWords(slide) {
  if (slide.status === "queued" && slide.queue_position) return `Waiting, number ${slide.queue_position} in the queue`;
  if (slide.status === "running")
    return `${Math.floor((slide.progress ?? 0) * 100)} %${slide.stage ? ` · ${slide.stage}` : ""}`;
  return WORDS[slide.status] ?? slide.status;
}

const NO_STEPS = ["reading", "waiting", "measuring"];

/** Shows how far a slide is in a `.progress`; where a stage has no steps to count, a light runs through the bar. */
export function showProgress(bar, slide) {
  const percent = Math.floor((slide.progress ?? 0) * 100);
  bar.firstElementChild.style.width = `${percent}%`;
  const words = slide.status === "running" ? `${percent} %, ${slide.stage}` : "waiting";
  put(bar, { "aria-valuenow": percent, "aria-valuetext": words });
  bar.classList.toggle("busy", slide.status === "running" && (NO_STEPS.includes(slide.stage) || percent <= 3));
}

/** The reason of a failure as text. */
export function failure(slide) {
  return slide.error ? new api.ApiError(0, slide.error).text : "";
}

export const isMoving = ({ status }) => status === "queued" || status === "running";

/** What the button is called that queues a slide again. */
export const retryWords = (slide) => (slide.error?.code === "mpp_missing" ? "Enter µm/px" : "Try again");

/** A row and `update(slide)`. `acts` has cancel, retry and remove, each called with the slide. */
export function makeRow(slide, acts) {
  const picture = h("div.thumbnail");
  const name = h("a.name");
  const facts = h("div.facts.muted.small");
  const findings = h("div.findings");
  const state = h("div.status.small");
  const buttons = h("div.row-actions");
  const element = h("li.row", picture, h("div.who", name, facts), findings, state, buttons);
  let drawn = "";

  function update(next) {
    element.dataset.status = next.status;
    element.dataset.id = next.id;
    const signature = JSON.stringify({ ...next, progress: 0, stage: "" }) + colourOf("BCC") + new Date().toDateString();
    if (signature !== drawn) {
      drawn = signature;
      draw(next);
    }
    if (isMoving(next)) {
      setText(state.querySelector(".words"), statusWords(next));
      showProgress(state.querySelector(".progress"), next);
    }
  }

  function draw(next) {
    name.href = `#/slide/${encodeURIComponent(next.id)}`;
    setText(name, next.name || next.slide_id);
    setText(
      facts,
      [
        next.tissue_area_mm2 ? `${area(next.tissue_area_mm2)} tissue` : null,
        next.pieces ? count(next.pieces, "piece") : null,
        moment(next.finished ?? next.created),
      ]
        .filter(Boolean)
        .join(" · "),
    );
    drawPicture(picture, next);
    findings.replaceChildren(...found(next));
    state.replaceChildren(...drawStatus(next));
    buttons.replaceChildren(...drawButtons(next, acts));
  }

  update(slide);
  return { element, update };
}

function found(slide) {
  if (slide.status === "failed") return [h("p.reason", failure(slide))];
  if (slide.status !== "done") return [];
  const warnings = (slide.quality_warnings ?? []).map((warning) =>
    h("span.chip.warn", { title: "Quality warning" }, icon("warn"), warning),
  );
  const quality = warnings.length ? warnings : [h("span.muted.small", "no quality warnings")];
  const corrected = slide.corrections ? h("span.chip.corrected", icon("correct"), correctedWords(slide)) : null;
  return [h("div.chips", unlikeChip(slide), cancerChips(slide), corrected, quality), tissueBar(slide)];
}

function drawPicture(picture, slide) {
  const readable = slide.status !== "failed" || slide.error?.code === "mpp_missing";
  if (slide.status !== "done" && !(slide.has_image && readable)) {
    picture.replaceChildren(icon("slides"));
    picture.dataset.of = "";
    return;
  }
  const shown = `${slide.id} ${slide.status === "done" ? slide.finished : ""}`;
  if (picture.dataset.of === shown) return;
  picture.dataset.of = shown;
  const image = h("img", { alt: "", loading: "lazy", decoding: "async", src: api.picture(slide) });
  image.addEventListener("error", () => picture.replaceChildren(icon("slides")));
  picture.replaceChildren(image);
}

function drawStatus(slide) {
  const words = h("span", { class: `words ${slide.status}` }, statusWords(slide));
  return isMoving(slide) ? [words, progressBar(`Progress of ${slide.name}`)] : [words];
}

function drawButtons(slide, acts) {
  const named = (text, act) => button(text, () => act(slide), "small", { "aria-label": `${text} ${slide.name}` });
  if (isMoving(slide)) return [named("Cancel", acts.cancel)];
  const remove = iconButton("bin", "Delete", () => acts.remove(slide), {
    class: "icon-button quiet",
    "aria-label": `Delete ${slide.name}`,
  });
  if (slide.status === "done") return [remove];
  return [named(retryWords(slide), acts.retry), remove];
}
