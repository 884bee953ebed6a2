// What the reader chose: light or dark, colours of the tissues, initials for corrections. Kept in the browser.

const KEY = "ntrm.";
export const prefs = new EventTarget();

const read = (name, fallback) => {
  try {
    return localStorage.getItem(KEY + name) ?? fallback;
  } catch {
    return fallback;
  }
};

const write = (name, value) => {
  try {
    localStorage.setItem(KEY + name, value);
  } catch {
    // A browser without storage forgets at reload: no reason to fail.
  }
};

const darkSystem = matchMedia("(prefers-color-scheme: dark)");
let theme = read("theme", "auto");
let initials = read("initials", "");
let palette = read("palette", "dataset") === "safe" ? "safe" : "dataset";

function apply() {
  const dark = theme === "dark" || (theme !== "light" && darkSystem.matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}

darkSystem.addEventListener("change", apply);
apply();

export const isDark = () => document.documentElement.dataset.theme === "dark";
export const paletteName = () => palette;

/** The other of light and dark; back to what the system says when that is the same. */
export function switchTheme() {
  const wanted = isDark() ? "light" : "dark";
  theme = wanted === (darkSystem.matches ? "dark" : "light") ? "auto" : wanted;
  write("theme", theme);
  apply();
  prefs.dispatchEvent(new Event("theme"));
}

/** Dataset colours or those told apart by colour-blind readers. */
export function switchPalette() {
  palette = palette === "safe" ? "dataset" : "safe";
  write("palette", palette);
  prefs.dispatchEvent(new Event("palette"));
}

export const initialsGiven = () => initials || null;

/** Who corrects: written into the log of corrections, if given at all. */
export function setInitials(text) {
  initials = text.trim();
  write("initials", initials);
}
