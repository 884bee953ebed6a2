// What can be saved of an open slide: the server's files, and what is on the screen.

import { html, useLayoutEffect, useRef } from "../vendor/preact/preact.min.js";
import * as api from "./api.js";
import { saveGraph, saveView } from "./figure.js";
import { Icon, rove } from "./ui.js";

/** Files of the network's result, and those with the corrections once they are written: [words, address, kind]. */
const FILES = [
  ["Report", "report", "page"],
  ["Polygons", "regions.geojson", "GeoJSON"],
  ["Mask", "mask", "OME-TIFF"],
  ["Summary", "summary", "JSON"],
];
const FAMILIARITY = ["Familiarity", "familiarity.jpg", "JPEG"];
const CORRECTED = [
  ["Corrected report", "corrected/report", "page"],
  ["Corrected polygons", "corrected/regions.geojson", "GeoJSON"],
  ["Corrected mask", "corrected/mask", "OME-TIFF"],
  ["Corrected summary", "corrected/summary", "JSON"],
];
const NEW_PAGE = { target: "_blank", rel: "noopener" };

export function Downloads({ view }) {
  const { slide, store, isMenuOpen } = view;
  const menu = useRef(null);
  const opener = useRef(null);
  const list = useRef(null);

  useLayoutEffect(() => {
    if (!isMenuOpen) return undefined;
    list.current.firstElementChild.focus();
    const outside = (event) => menu.current.contains(event.target) || leave();
    document.addEventListener("pointerdown", outside);
    return () => document.removeEventListener("pointerdown", outside);
  }, [isMenuOpen]);

  /** The focus does not stay in a list that is not shown. */
  function leave() {
    opener.current.focus();
    view.set({ isMenuOpen: false });
  }

  function press(event) {
    if (event.key === "Escape") {
      event.preventDefault();
      leave();
    } else rove(event);
  }

  const act = (work) => () => {
    leave();
    work(view);
  };
  const files = [...FILES, ...(slide.familiarity?.has_map ? [FAMILIARITY] : [])];
  const file = ([words, what, kind]) =>
    html`<a key=${what} role="menuitem" href=${api.address(slide.id, what)}
      ...${kind === "page" ? NEW_PAGE : { download: "" }} onClick=${leave}>
      ${words}<span class="small">${kind}</span>
    </a>`;
  const button = (words, kind, work) =>
    html`<button type="button" role="menuitem" onClick=${act(work)}>
      ${words}<span class="small">${kind}</span>
    </button>`;
  return html`<div class="menu" ref=${menu}>
    <button type="button" class="button" aria-label="Download" aria-haspopup="menu" aria-expanded=${isMenuOpen}
      ref=${opener} onClick=${() => view.set({ isMenuOpen: !isMenuOpen })}>
      <${Icon} name="download" /><span class="wide-only">Download</span>
    </button>
    <div class="menu-list" role="menu" aria-label="Downloads" hidden=${!isMenuOpen} ref=${list} onKeyDown=${press}>
      ${files.map(file)} ${button("This view", "PNG", saveView)} ${button("Tissue graph", "SVG", saveGraph)}
      ${store.isMeasured && CORRECTED.map(file)}
    </div>
  </div>`;
}
