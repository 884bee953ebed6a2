// Reading a place: what lies under the pointer, and the measurements of the region that was clicked.

import * as api from "./api.js";
import { h } from "./dom.js";
import { area, confidence, length, share } from "./format.js";
import { dotOf, titleOf } from "./palette.js";
import { facts } from "./relations-panel.js";

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

/** One line about a place. */
export function readingLine(answer) {
  if (!answer?.tissue) return [];
  const renamed = answer.network_tissue !== answer.tissue;
  const changed = answer.coarse_tissue && answer.coarse_tissue !== answer.tissue;
  return [
    dotOf(answer.tissue),
    h("strong", titleOf(answer.tissue)),
    renamed ? h("span.muted", `network: ${answer.network_tissue ?? "nothing"}`) : null,
    answer.confidence === null || answer.confidence === undefined
      ? null
      : h("span.number.muted", `confidence ${confidence(answer.confidence)}`),
    changed && !renamed ? h("span.muted", `coarse: ${answer.coarse_tissue}`) : null,
  ].filter(Boolean);
}

/**
 * The panel, `show(place)`, `clear()` and `update()`, which reads the place again where another version is shown.
 * `found(region)` is told the region with its outline, or null, `noteOn(region)` says what must be known about it, and
 * `shown()` the version of the corrections that is shown, 0 for the network's, and whether its numbers are written.
 */
export function makeRegion(id, found, noteOn, shown) {
  const body = h("div", { role: "status" });
  const element = h("section", h("div.panel-head", h("h2", "Region")), body);
  const hint = h("p.muted", "Click a place on the slide, or press Enter to show the region in the middle of the view.");
  body.append(hint);
  let asked = 0; // answers to earlier questions may come later
  let last = null; // the place that was read, and what was shown then

  function tell(text) {
    body.replaceChildren(h("p.muted", text));
    found(null);
  }

  function clear() {
    asked += 1;
    last = null;
    body.replaceChildren(hint);
    found(null);
  }

  async function show(place) {
    asked += 1;
    const mine = asked;
    const { version, isWritten } = shown();
    last = { place, key: keyOf(shown()) };
    let at;
    let region = null;
    try {
      at = await api.at(id, place, version);
      if (at.region) region = await api.region(id, at.region, version);
    } catch (error) {
      if (mine === asked) tell(error.status ? "This place is not on the slide." : "The server does not answer.");
      return;
    }
    if (mine !== asked) return;
    if (!region) {
      const why = isWritten ? "no region is measured here" : "its region is measured when the corrections are written";
      tell(at.tissue ? `${titleOf(at.tissue)}; ${why}.` : "Nothing was segmented here.");
      return;
    }
    const rows = [
      ["Area", area(region.area_mm2)],
      ["Perimeter", length(region.perimeter_mm)],
      ["Mean confidence", confidence(region.mean_confidence)],
      ...(version ? personRows(region) : []),
      ["Confidence here", confidence(at.confidence)],
      ...(version ? [["Network here", at.network_tissue ?? "–"]] : []),
      ["Coarse prediction here", at.coarse_tissue ?? "–"],
      ["Piece", region.piece ?? at.piece ?? "–"],
      ["Number", at.region],
    ];
    const parts = [
      h("div.panel-head", dotOf(region.tissue), h("h3", titleOf(region.tissue))),
      noteOn(region) ? h("p.small.unread", noteOn(region)) : null,
      facts(rows),
      region.outline && !region.outline_exact
        ? h("p.small.muted", "A long border: the outline on the slide leaves out some of its points.")
        : null,
      h("p.small.muted", "For research, not for diagnosis."),
    ];
    body.replaceChildren(...parts.filter(Boolean));
    found(region);
  }

  function update() {
    if (last && last.key !== keyOf(shown())) show(last.place);
  }

  return { element, show, clear, update };
}

const keyOf = ({ version, isWritten }) => `${version} ${isWritten}`;

/** What a person has done to a region of the corrected mask. */
const personRows = ({ corrected_by_hand: hand, corrected_followed: followed }) => [
  ["Named by a person", share(hand ?? 0)],
  ["Followed", share(followed ?? 0)],
];
