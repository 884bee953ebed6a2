// What stands around a slide: the bar with name, pieces and downloads, and the panel with its tabs.

import * as api from "./api.js";
import { button, h, icon, iconButton, rove, setText } from "./dom.js";
import { familiarityLine } from "./familiarity.js";
import { cancerChips } from "./row.js";

/** Elements, `update(view)`, `select(tab)` and `closeMenu()`. */
export function makeShell(slide, tools, { stage, tabs, pieces, step, correct, downloads, model, banner }) {
  const piece = h("span.number", { role: "status" });
  const stepper = h(
    "div.stepper",
    { hidden: pieces.length < 2 },
    iconButton("back", "Previous piece", () => step(-1)),
    piece,
    iconButton("next", "Next piece", () => step(1)),
  );
  const menu = makeMenu(slide, downloads);
  const correcting = button([icon("correct"), h("span.wide-only", "Correct")], correct, "", {
    title: "Correct (e)",
    "aria-label": "Correct",
  });
  const chips = h("div.chips");
  const warnings = (slide.quality_warnings ?? []).map((warning) =>
    h("span.chip.warn", { title: warning }, icon("warn"), h("span.cut", warning)),
  );
  const header = h(
    "header.bar.slide-bar",
    tools.back(),
    h("h1.slide-name", { title: slide.name }, slide.name || slide.slide_id),
    chips,
    h("span.grow"),
    h("span.purpose", tools.purpose),
    stepper,
    correcting,
    menu.element,
    ...tools.buttons(),
  );
  const note = h("p.version-note.small", { role: "status", hidden: true });
  const panel = makeTabs(tabs, note);
  panel.element.append(
    h(
      "footer.panel-foot.small.muted",
      h("span", `${tools.purpose}.`),
      h("span.wide-only", ` Model ${model.name} ${model.version}. `, tools.notice),
      h("span.familiarity", ` ${familiarityLine(slide)}`),
    ),
  );
  const missing =
    "The slide's file was not found in the folders of this server: the segmentation is shown on a white background.";
  const strip = slide.has_image ? null : h("p.strip.no-image", icon("warn"), h("span", missing));
  const main = h(
    "main.slide",
    { id: "main", tabIndex: -1 },
    h("div.stage-column", banner, strip, stage),
    panel.element,
  );
  return {
    elements: [header, main],
    select: panel.select,
    closeMenu: menu.close,
    /** With what is read: cancers, words about corrections and about their results, and whether these are there. */
    update(view, { cancers, words, results, isWritten, isOn }) {
      setText(piece, view.piece === null ? `All ${pieces.length} pieces` : `Piece ${view.piece} of ${pieces.length}`);
      const corrected = words
        ? [h("span.chip.corrected", { title: words }, icon("correct"), h("span.cut", words))]
        : [];
      chips.replaceChildren(...cancerChips({ cancers }), ...corrected, ...warnings);
      main.dataset.version = words ? "corrected" : "network";
      correcting.setAttribute("aria-pressed", String(isOn));
      setText(note, isWritten ? "" : results);
      note.hidden = !note.textContent;
      menu.offer(isWritten);
    },
  };
}

function makeMenu(slide, downloads) {
  const item = (tag, properties, text, kind) =>
    h(tag, { role: "menuitem", ...properties }, text, h("span.small", kind));
  const link = (text, what, kind) => item("a", { href: api.address(slide.id, what), download: "" }, text, kind);
  const page = (text, what) =>
    item("a", { href: api.address(slide.id, what), target: "_blank", rel: "noopener" }, text, "page");
  const act = (text, call, kind) => {
    const click = () => {
      close();
      call();
    };
    return item("button", { type: "button", on: { click } }, text, kind);
  };
  const corrected = [
    page("Corrected report", "corrected/report"),
    link("Corrected polygons", "corrected/regions.geojson", "GeoJSON"),
    link("Corrected mask", "corrected/mask", "OME-TIFF"),
    link("Corrected summary", "corrected/summary", "JSON"),
  ];
  const list = h(
    "div.menu-list",
    { role: "menu", "aria-label": "Downloads", hidden: true },
    page("Report", "report"),
    link("Polygons", "regions.geojson", "GeoJSON"),
    link("Mask", "mask", "OME-TIFF"),
    link("Summary", "summary", "JSON"),
    slide.familiarity?.has_map ? link("Familiarity", "familiarity.jpg", "JPEG") : null,
    act("This view", downloads.picture, "PNG"),
    act("Tissue graph", downloads.graph, "SVG"),
    corrected,
  );
  const words = [icon("download"), h("span.wide-only", "Download")];
  const opener = button(words, () => (list.hidden ? open() : close()), "", {
    "aria-label": "Download",
    "aria-haspopup": "menu",
    "aria-expanded": "false",
  });
  const element = h("div.menu", opener, list);

  function open() {
    list.hidden = false;
    opener.setAttribute("aria-expanded", "true");
    list.firstElementChild.focus();
    document.addEventListener("pointerdown", outside);
  }

  /** Whether there was something to close. */
  function close() {
    if (list.hidden) return false;
    list.hidden = true;
    opener.setAttribute("aria-expanded", "false");
    document.removeEventListener("pointerdown", outside);
    if (list.contains(document.activeElement)) opener.focus();
    return true;
  }

  const outside = (event) => {
    if (!element.contains(event.target)) close();
  };
  list.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    close();
    event.preventDefault();
  });
  rove(list, [...list.children]);
  list.addEventListener("click", (event) => {
    if (event.target.closest("a")) close();
  });
  return {
    element,
    close,
    /** Whether what was corrected can be had. */
    offer(there) {
      for (const item of corrected) item.hidden = !there;
    },
  };
}

function makeTabs(tabs, note) {
  const buttons = tabs.map(([key, label]) =>
    button(label, () => select(key), "", {
      class: "",
      role: "tab",
      id: `tab-${key}`,
      "aria-controls": `panel-${key}`,
      "data-tab": key,
    }),
  );
  const bodies = tabs.map(([key, , children]) =>
    h("div.tab-body", { role: "tabpanel", id: `panel-${key}`, "aria-labelledby": `tab-${key}` }, children),
  );
  const bar = h("div.tabs", { role: "tablist", "aria-label": "Readings" }, buttons);
  rove(bar, buttons, (next) => next.click());

  function select(key, wanted = false) {
    // The focus never stays on a tab that is not shown.
    const focus = wanted || bar.contains(document.activeElement);
    tabs.forEach(([other], index) => {
      const on = other === key;
      buttons[index].setAttribute("aria-selected", String(on));
      buttons[index].tabIndex = on ? 0 : -1;
      bodies[index].hidden = !on;
      if (on && focus) buttons[index].focus();
    });
  }

  select(tabs[0][0]);
  return { element: h("aside.panel", { "aria-label": "Readings of the slide" }, bar, note, bodies), select };
}
