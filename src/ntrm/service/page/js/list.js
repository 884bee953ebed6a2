// The list of slides: what is there, what is on its way, search, sort, add.

import * as api from "./api.js";
import { askForSlides, confirmLoss, retrySlide } from "./dialogs.js";
import { button, h, icon, notice, say, setText } from "./dom.js";
import { notAssessed, unlikeWords } from "./familiarity.js";
import { count } from "./format.js";
import { bind, shortcuts } from "./keyboard.js";
import { poll } from "./poll.js";
import { prefs } from "./prefs.js";
import { correctedWords, failure, isMoving, makeRow } from "./row.js";
import { drawUploads, uploads } from "./upload.js";

const RANK = { running: 0, queued: 1, failed: 2, cancelled: 3, done: 4 };
const text = (slide) => slide.name || slide.slide_id || "";
const cancers = (slide) =>
  (slide.cancers ?? [])
    .filter((cancer) => cancer.present)
    .map((cancer) => cancer.name)
    .join(" ");
const when = (slide) => Date.parse(slide.created);
const byName = (a, b) => text(a).localeCompare(text(b), undefined, { numeric: true });

const SORTS = {
  newest: ["Newest first", (a, b) => when(b) - when(a) || byName(a, b)],
  name: ["Name", byName],
  cancer: ["Cancer type", (a, b) => !cancers(a) - !cancers(b) || cancers(a).localeCompare(cancers(b)) || byName(a, b)],
  area: ["Most tissue", (a, b) => (b.tissue_area_mm2 ?? 0) - (a.tissue_area_mm2 ?? 0) || byName(a, b)],
  status: ["Status", (a, b) => RANK[a.status] - RANK[b.status] || byName(a, b)],
};

/** Whether every word of `query` is found in what the row tells. */
export function matches(slide, query) {
  const hay = [
    text(slide),
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
    .every((word) => hay.includes(word));
}

const kept = { query: "", sort: "newest" };

/** Shows the list in `root`; returns how to leave it. */
export function showList(root, tools) {
  const rows = new Map();
  let slides = null;
  let broken = null;
  let refused = "";
  const ask = () => askForSlides(tools.about.server_paths);

  const choose = () => {
    Object.assign(kept, { query: search.value, sort: sort.value });
    draw();
  };
  const search = h("input.field.search", {
    type: "search",
    placeholder: "Search",
    "aria-label": "Search slides by name, cancer, status or warning",
    value: kept.query,
    on: { input: choose },
  });
  const sort = h(
    "select.select",
    { "aria-label": "Sort by", on: { change: choose } },
    Object.entries(SORTS).map(([key, [label]]) => h("option", { value: key, selected: key === kept.sort }, label)),
  );
  const add = button([icon("plus"), "Add slides"], ask, "primary");
  const sending = h("ul.rows.sending", { "aria-label": "Uploads" });
  const list = h("ul.rows", { "aria-label": "Slides" });
  const state = h("div.list-state");
  const notices = h("div.notices");
  const total = h("p.muted.small", { role: "status" });
  root.replaceChildren(
    h("header.bar", tools.brand(), h("span.purpose", tools.purpose), h("span.grow"), ...tools.buttons()),
    h(
      "main.list",
      { id: "main", tabIndex: -1 },
      h("div.list-tools", h("h1", "Slides"), h("span.grow"), search, sort, add),
      notices,
      sending,
      list,
      state,
      total,
    ),
  );

  const acts = {
    cancel: (slide) => act(slide, "cancelled", () => api.cancel(slide.id)),
    retry: (slide) => act(slide, "queued again", () => retrySlide(slide)),
    remove: async (slide) => {
      const corrected = slide.corrections
        ? ` So will the corrections by people: ${count(slide.corrections, "step")}.`
        : "";
      const sure = await confirmLoss(
        `Delete “${text(slide)}”?`,
        `Its results and the uploaded file will be deleted.${corrected} ` +
          "A file that was added by its path stays where it is.",
        "Delete",
      );
      if (sure) act(slide, "deleted", () => api.remove(slide.id));
    },
  };

  /** Does something with a slide; where it is refused, that is shown until the next time. */
  async function act(slide, done, call) {
    refused = "";
    try {
      await call();
    } catch (error) {
      refused = `“${text(slide)}” was not ${done}: ${error.text ?? "the server does not answer."}`;
      say(refused);
    }
    draw();
    polling.now();
  }

  async function refresh() {
    try {
      [slides] = await Promise.all([api.slides(), tools.renew()]);
      broken = null;
    } catch (error) {
      broken = error;
      draw();
      throw error;
    }
    draw();
    return uploads.busy || slides.some(isMoving);
  }

  function draw() {
    drawNotices(notices, tools, refused);
    drawUploads(sending);
    const shown = (slides ?? []).filter((slide) => matches(slide, kept.query)).sort(SORTS[kept.sort][1]);
    const wanted = new Set(shown.map((slide) => slide.id));
    for (const [id, row] of rows) {
      if (wanted.has(id)) continue;
      row.element.remove();
      rows.delete(id);
    }
    shown.forEach((slide, index) => {
      let row = rows.get(slide.id);
      if (row) row.update(slide);
      else rows.set(slide.id, (row = makeRow(slide, acts)));
      // Moving a row that is already in place would take the focus from it.
      if (list.children[index] !== row.element) list.insertBefore(row.element, list.children[index] ?? null);
    });
    list.hidden = !shown.length;
    const some = shown.length === slides?.length ? "" : `${shown.length} of `;
    setText(total, slides?.length ? some + count(slides.length, "slide") : "");
    drawState(state, slides, shown, broken, { retry: () => polling.now(), ask });
  }

  const unbind = bind([
    ...shortcuts("List", [
      ["/", "Search", () => search.focus()],
      ["a", "Add slides", ask],
      [["j", "ArrowDown"], "Next slide", () => step(list, 1), { shown: ["j", "↓"] }],
      [["k", "ArrowUp"], "Previous slide", () => step(list, -1), { shown: ["k", "↑"] }],
      ["Enter", "Open the slide", () => {}],
    ]),
    ...tools.bindings,
  ]);
  const polling = poll(refresh);
  uploads.addEventListener("change", draw);
  uploads.addEventListener("added", polling.now);
  prefs.addEventListener("palette", draw);
  return () => {
    polling.stop();
    unbind();
    uploads.removeEventListener("change", draw);
    uploads.removeEventListener("added", polling.now);
    prefs.removeEventListener("palette", draw);
  };
}

function drawNotices(notices, tools, told) {
  const strip = (text, kind) => h("p", { class: `strip ${kind}` }, icon("warn"), h("span", text));
  const refused = tools.about.worker_error;
  const texts = [
    tools.notice && [tools.notice, ""],
    refused && [`Nothing can be segmented at the moment: ${new api.ApiError(0, refused).text}`, "bad"],
    told && [told, "bad"],
  ].filter(Boolean);
  const key = JSON.stringify(texts);
  if (notices.dataset.key !== key) notices.replaceChildren(...texts.map(([text, kind]) => strip(text, kind)));
  notices.dataset.key = key;
}

function step(list, by) {
  const links = [...list.querySelectorAll(".name")];
  const at = links.indexOf(document.activeElement?.closest(".row")?.querySelector(".name"));
  links[Math.max(0, Math.min(links.length - 1, at + by))]?.focus();
}

function drawState(state, slides, shown, broken, acts) {
  const box = (name, title, words, ...actions) =>
    state.replaceChildren(h("div.state", notice(name, title, words, h("div.actions", actions))));
  if (shown.length || (slides?.length === 0 && uploads.items.length)) state.replaceChildren();
  else if (slides === null && broken)
    box(
      "gone",
      "The slides cannot be listed",
      broken.text ?? "The server does not answer. It may have been stopped; this page tries again by itself.",
      button("Try now", acts.retry),
    );
  else if (slides === null) state.replaceChildren(h("div.state", h("p", "Loading …")));
  else if (slides.length)
    box("search", "No slide matches the search", "Names, cancer types, status and warnings are searched.");
  else
    box(
      "upload",
      "Drop a slide here",
      "It is segmented on this server, and the result appears in this list. Nothing is sent anywhere else.",
      button([icon("plus"), "Add slides"], acts.ask, "primary"),
    );
}
