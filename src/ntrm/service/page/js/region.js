// Reading a place: what lies under the pointer, and the measurements of the region that was clicked.

import { html } from "../vendor/preact/preact.min.js";
import * as api from "./api.js";
import { regionNote } from "./familiarity.js";
import { area, confidence, length, share } from "./format.js";
import { ringOf } from "./geometry.js";
import { Dot, titleOf } from "./palette.js";
import { isFromNothing } from "./state.js";
import { Facts } from "./ui.js";

const PAUSE = 80;

/**
 * Asks `question(place)` for the latest place only, one at a time: a quick pointer does not flood the server.
 * `show(answer)` is told null where there is none.
 */
export class Hover {
  constructor(question, show) {
    this.question = question;
    this.show = show;
    this.wanted = null;
    this.busy = false;
    this.timer = null;
  }

  /** A place in pixels of the slide, or null when the pointer has left. */
  move(place) {
    this.wanted = place;
    if (!place) this.show(null);
    else if (!this.busy && !this.timer) this.timer = setTimeout(() => this.ask(), PAUSE);
  }

  async ask() {
    this.timer = null;
    const place = this.wanted;
    if (!place) return;
    this.busy = true;
    try {
      const answer = await this.question(place);
      if (this.wanted) this.show(answer);
    } catch {
      this.show(null); // beside the slide, or the server is gone, which is told elsewhere
    }
    this.busy = false;
    if (this.wanted && this.wanted !== place) this.timer = setTimeout(() => this.ask(), PAUSE);
  }

  stop() {
    this.move(null);
    clearTimeout(this.timer);
  }
}

/** One line about a place, or null. */
export function readingLine(answer) {
  if (!answer?.tissue) return null;
  const { tissue, network_tissue: network, coarse_tissue: coarse, confidence: sure } = answer;
  const renamed = network !== tissue && !isFromNothing();
  return html`<${Dot} of=${tissue} />
    <strong>${titleOf(tissue)}</strong>
    ${renamed && html`<span class="muted">network: ${network ?? "nothing"}</span>`}
    ${(sure ?? null) !== null && html`<span class="number muted">confidence ${confidence(sure)}</span>`}
    ${coarse && coarse !== tissue && !renamed && html`<span class="muted">coarse: ${coarse}</span>`}`;
}

/** Reads the region at a place, in the version that is shown; answers to earlier questions may come later. */
export async function readRegion(view, place) {
  const asked = { place, ...view.shownVersion };
  view.asked = asked;
  let read;
  try {
    const at = await api.at(view.id, place, asked.version);
    read = { ...asked, at, found: at.region ? await api.region(view.id, at.region, asked.version) : null };
  } catch (error) {
    read = { ...asked, problem: error.status ? "This place is not on the slide." : "The server does not answer." };
  }
  if (view.asked === asked) view.region = read;
}

export function clearRegion(view) {
  view.asked = null;
  view.region = null;
}

/** Reads the place again where another version is shown, or its numbers have come. */
export function followVersion(view) {
  const { version, isWritten } = view.shownVersion;
  const { asked } = view;
  if (asked && (asked.version !== version || asked.isWritten !== isWritten)) readRegion(view, asked.place);
}

/** The region's rings, or its bounds where they could not be read; null where none is shown. */
export function outlineOf({ region }) {
  if (!region?.found) return null;
  const { outline, left_px: left, top_px: top, width_px: width, height_px: height } = region.found;
  return outline ?? [ringOf({ left, top, width, height })];
}

export const Region = ({ view }) =>
  html`<section>
    <div class="panel-head"><h2>Region</h2></div>
    <div role="status">
      ${view.region?.found ? html`<${Found} view=${view} />` : html`<p class="muted">${wordsOn(view.region)}</p>`}
    </div>
  </section>`;

/** What is said where no region is shown. */
function wordsOn(region) {
  if (!region) return "Click a place on the slide, or press Enter to show the region in the middle of the view.";
  const { problem, at, isWritten } = region;
  if (problem) return problem;
  if (!at.tissue) return "Nothing was segmented here.";
  const why = isWritten ? "no region is measured here" : "its region is measured when the corrections are written";
  return `${titleOf(at.tissue)}; ${why}.`;
}

function Found({ view }) {
  const { version, at, found } = view.region;
  const note = regionNote(view.summary, found);
  const rows = [
    ["Area", area(found.area_mm2)],
    ["Perimeter", length(found.perimeter_mm)],
    ["Mean confidence", confidence(found.mean_confidence)],
    version && ["Named by a person", share(found.corrected_by_hand ?? 0)],
    version && ["Followed", share(found.corrected_followed ?? 0)],
    ["Confidence here", confidence(at.confidence)],
    version && !isFromNothing() && ["Network here", at.network_tissue ?? "–"],
    !isFromNothing() && ["Coarse prediction here", at.coarse_tissue ?? "–"],
    ["Piece", found.piece ?? at.piece ?? "–"],
    ["Number", at.region],
  ];
  return html`<div class="panel-head"><${Dot} of=${found.tissue} /><h3>${titleOf(found.tissue)}</h3></div>
    ${note && html`<p class="small unread">${note}</p>`}
    <${Facts} rows=${rows.filter(Boolean)} />
    ${found.outline && !found.outline_exact &&
      html`<p class="small muted">A long border: the outline on the slide leaves out some of its points.</p>`}
    <p class="small muted">For research, not for diagnosis.</p>`;
}
