// What the page knows, in signals: a panel or an effect that reads a value is drawn or run again once it changes.

import { batch, computed, effect, signal, useRef } from "../vendor/preact/preact.min.js";

/** Gives `target` properties that are kept in signals and read and set like any others. */
export function observe(target, fields) {
  for (const [name, first] of Object.entries(fields)) {
    const cell = signal(first);
    const set = (value) => {
      cell.value = value;
    };
    Object.defineProperty(target, name, { enumerable: true, get: () => cell.value, set });
  }
  return target;
}

/** State of one panel, for as long as it is on the page. */
export function useObserved(fields) {
  const kept = useRef(null);
  kept.current ??= observe({}, fields);
  return kept.current;
}

/** The page as a whole: what the server says about itself, whether it answers, and what the address names. */
export const page = observe({}, { about: null, isLost: false, hash: location.hash });

/** Whether tissues are named from nothing: there is no model, and classes may be added and renamed. */
export const isFromNothing = () => page.about.classes_open;

window.addEventListener("hashchange", () => change(page, { hash: location.hash }));

const KEY = "ntrm.";

function read(name, fallback) {
  try {
    return localStorage.getItem(KEY + name) ?? fallback;
  } catch {
    return fallback;
  }
}

function write(name, value) {
  try {
    localStorage.setItem(KEY + name, value);
  } catch {
    // A browser without storage forgets at reload: no reason to fail.
  }
}

/** What the reader chose, kept in the browser: light or dark, colours of the tissues, initials for corrections. */
export const prefs = observe(
  {},
  { theme: read("theme", "auto"), palette: read("palette", "dataset"), initials: read("initials", "") },
);
effect(() => Object.entries(prefs).forEach(([name, value]) => write(name, value)));

const system = matchMedia("(prefers-color-scheme: dark)");
const isSystemDark = signal(system.matches);
system.addEventListener("change", () => {
  isSystemDark.value = system.matches;
});
const dark = computed(() => prefs.theme === "dark" || (prefs.theme !== "light" && isSystemDark.value));
effect(() => {
  document.documentElement.dataset.theme = dark.value ? "dark" : "light";
});

export const isDark = () => dark.value;
export const isSafe = () => prefs.palette === "safe";

/** The other of light and dark; back to what the system says when that is the same. */
export function switchTheme() {
  prefs.theme = dark.value === isSystemDark.value ? (dark.value ? "light" : "dark") : "auto";
}

/** Dataset colours or those told apart by colour-blind readers. */
export function switchPalette() {
  prefs.palette = isSafe() ? "dataset" : "safe";
}

/** What is shown of a slide when it is opened. */
export const VIEW = {
  tab: "tissues",
  layer: "tissue",
  version: "tissue", // the mask whose numbers are shown: the network's, or the corrected one
  opacity: 0.5,
  hidden: new Set(), // tissues that are switched off
  compare: "off",
  piece: null, // its number; null for all
  isUp: false, // the skin's surface
  lines: true, // of measurements
  highlight: null, // { kind: "tissue", name } or { kind: "interface", a, b }
  relation: "boundary",
  attentionLayer: "mean",
  window: null, // of the network, behind an edge
  region: null, // that was read, with its outline
  isMenuOpen: false,
};

/** Several changes that are seen as one. */
export const change = (target, fields) => batch(() => Object.assign(target, fields));
