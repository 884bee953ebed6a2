// The list of slides: what is there, what is on its way, search, sort, add.

import { html, useEffect, useRef } from "../vendor/preact/preact.min.js";
import * as api from "./api.js";
import { BarButtons, Brand, PAGE_KEYS, Purpose, serverNotice } from "./bar.js";
import { askForSlides, confirmLoss, retrySlide } from "./dialogs.js";
import { notAssessed, unlikeWords } from "./familiarity.js";
import { count } from "./format.js";
import { bind, shortcuts } from "./keyboard.js";
import { usePolling } from "./poll.js";
import { correctedWords, failure, isMoving, Row } from "./row.js";
import { change, observe, page, useObserved } from "./state.js";
import { Button, Icon, Notice, say } from "./ui.js";
import { Sending, uploads } from "./upload.js";

const RANK = { running: 0, queued: 1, failed: 2, cancelled: 3, done: 4 };
const nameOf = (slide) => slide.name || slide.slide_id || "";
const cancers = (slide) =>
  (slide.cancers ?? [])
    .filter((cancer) => cancer.present)
    .map((cancer) => cancer.name)
    .join(" ");
const when = (slide) => Date.parse(slide.created);
const byName = (a, b) => nameOf(a).localeCompare(nameOf(b), undefined, { numeric: true });

const SORTS = {
  newest: ["Newest first", (a, b) => when(b) - when(a) || byName(a, b)],
  name: ["Name", byName],
  cancer: ["Cancer type", (a, b) => !cancers(a) - !cancers(b) || cancers(a).localeCompare(cancers(b)) || byName(a, b)],
  area: ["Most tissue", (a, b) => (b.tissue_area_mm2 ?? 0) - (a.tissue_area_mm2 ?? 0) || byName(a, b)],
  status: ["Status", (a, b) => RANK[a.status] - RANK[b.status] || byName(a, b)],
};

/** Whether every word of `query` is found in what the row tells. */
function matches(slide, query) {
  const told = [
    nameOf(slide),
    slide.slide_id,
    slide.status,
    cancers(slide),
    notAssessed(slide) ? "cancers not assessed" : "",
    unlikeWords(slide),
    correctedWords(slide),
    ...(slide.quality_warnings ?? []),
    failure(slide),
  ]
    .join(" ")
    .toLowerCase();
  return query
    .toLowerCase()
    .split(/\s+/)
    .every((word) => told.includes(word));
}

/** How the list is searched and sorted; kept while a slide is looked at. */
const chosen = observe({}, { query: "", sort: "newest" });
const ask = () => askForSlides(page.about.server_paths);

export function List() {
  const list = useObserved({ slides: null, error: null, refused: "" });
  const search = useRef(null);
  const rows = useRef(null);
  const drawn = useRef(new WeakMap());

  const polling = usePolling(async () => {
    try {
      const [slides] = await Promise.all([api.slides(), renew()]);
      change(list, { slides: keepSame(list.slides ?? [], slides), error: null });
    } catch (error) {
      list.error = error;
      throw error;
    }
    return uploads.isBusy || list.slides.some(isMoving);
  });

  /** Does something with a slide; where it is refused, that is shown until the next time. */
  async function act(slide, done, call) {
    list.refused = "";
    try {
      await call();
    } catch (error) {
      list.refused = `“${nameOf(slide)}” was not ${done}: ${error.text ?? "the server does not answer."}`;
      say(list.refused);
    }
    polling.now();
  }
  const acts = {
    cancel: (slide) => act(slide, "cancelled", () => api.cancel(slide.id)),
    retry: (slide) => act(slide, "queued again", () => retrySlide(slide)),
    remove: async (slide) => (await isSure(slide)) && act(slide, "deleted", () => api.remove(slide.id)),
  };

  useEffect(() => {
    document.title = "NTRM";
    uploads.onArrival = polling.now;
    return bind([
      ...shortcuts("List", [
        ["/", "Search", () => search.current.focus()],
        ["a", "Add slides", ask],
        [["j", "ArrowDown"], "Next slide", () => step(rows.current, 1), { shown: ["j", "↓"] }],
        [["k", "ArrowUp"], "Previous slide", () => step(rows.current, -1), { shown: ["k", "↑"] }],
        ["Enter", "Open the slide", () => {}],
      ]),
      ...PAGE_KEYS,
    ]);
  }, []);

  /** The row of a slide that is as it was need not be drawn again. */
  const rowOf = (slide) => {
    const row = drawn.current.get(slide) ?? html`<${Row} key=${slide.id} slide=${slide} acts=${acts} />`;
    drawn.current.set(slide, row);
    return row;
  };
  const slides = list.slides ?? [];
  const shown = slides.filter((slide) => matches(slide, chosen.query)).sort(SORTS[chosen.sort][1]);
  const part = shown.length === slides.length ? "" : `${shown.length} of `;
  return html`<header class="bar"><${Brand} /><${Purpose} /><span class="grow" /><${BarButtons} /></header>
    <main class="list" id="main" tabindex="-1">
      <div class="list-tools"><h1>Slides</h1><span class="grow" /><${Tools} search=${search} /></div>
      <${Notices} refused=${list.refused} />
      <${Sending} />
      <ul class="rows" aria-label="Slides" hidden=${!shown.length} ref=${rows}>
        ${shown.map(rowOf)}
      </ul>
      <div class="list-state"><${State} list=${list} isEmpty=${!shown.length} retry=${polling.now} /></div>
      <p class="muted small" role="status">${slides.length ? part + count(slides.length, "slide") : ""}</p>
    </main>`;
}

/** What the server says now, with the objects of before for slides that are as they were. */
function keepSame(before, now) {
  const known = new Map(before.map((slide) => [slide.id, slide]));
  const isSame = (slide) => JSON.stringify(known.get(slide.id)) === JSON.stringify(slide);
  return now.map((slide) => (isSame(slide) ? known.get(slide.id) : slide));
}

/** Asks what the server is, while it is still getting ready. */
async function renew() {
  if (page.about.worker !== "ready" || !page.about.classes.length) page.about = await api.about();
}

function isSure(slide) {
  const corrected = slide.corrections ? ` So will the corrections by people: ${count(slide.corrections, "step")}.` : "";
  const words =
    `Its results and the uploaded file will be deleted.${corrected} ` +
    "A file that was added by its path stays where it is.";
  return confirmLoss(`Delete “${nameOf(slide)}”?`, words, "Delete");
}

function step(rows, by) {
  const links = [...rows.querySelectorAll(".name")];
  const at = links.indexOf(document.activeElement?.closest(".row")?.querySelector(".name"));
  links[Math.max(0, Math.min(links.length - 1, at + by))]?.focus();
}

const AddButton = () =>
  html`<${Button} kind="primary" onClick=${ask}><${Icon} name="plus" />Add slides</${Button}>`;

const Tools = ({ search }) =>
  html`<input class="field search" type="search" placeholder="Search"
      aria-label="Search slides by name, cancer, status or warning" value=${chosen.query} ref=${search}
      onInput=${({ target }) => change(chosen, { query: target.value })} />
    <select class="select" aria-label="Sort by" value=${chosen.sort}
      onChange=${({ target }) => change(chosen, { sort: target.value })}>
      ${Object.entries(SORTS).map(([key, [label]]) => html`<option value=${key}>${label}</option>`)}
    </select>
    <${AddButton} />`;

function Notices({ refused }) {
  const { worker_error: error } = page.about;
  const stopped = error && `Nothing can be segmented at the moment: ${new api.ApiError(0, error).text}`;
  const strip = (words, kind) =>
    words && html`<p class=${`strip ${kind}`}><${Icon} name="warn" /><span>${words}</span></p>`;
  return html`<div class="notices">${strip(serverNotice(), "")}${strip(stopped, "bad")}${strip(refused, "bad")}</div>`;
}

/** What stands in the place of rows where there are none. */
function State({ list: { slides, error }, isEmpty, retry }) {
  if (!isEmpty || (slides?.length === 0 && uploads.items.length)) return null;
  if (slides === null && !error) return html`<div class="state"><p>Loading …</p></div>`;
  const [icon, title, words, action] = wordsOf(slides, error, retry);
  return html`<div class="state">
    <${Notice} icon=${icon} title=${title} words=${words}><div class="actions">${action}</div></${Notice}>
  </div>`;
}

function wordsOf(slides, error, retry) {
  if (slides === null)
    return [
      "gone",
      "The slides cannot be listed",
      error.text ?? "The server does not answer. It may have been stopped; this page tries again by itself.",
      html`<${Button} onClick=${retry}>Try now</${Button}>`,
    ];
  if (slides.length)
    return ["search", "No slide matches the search", "Names, cancer types, status and warnings are searched."];
  return [
    "upload",
    "Drop a slide here",
    "It is segmented on this server, and the result appears in this list. Nothing is sent anywhere else.",
    html`<${AddButton} />`,
  ];
}
