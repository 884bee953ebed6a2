// The top bar that every view has.

import { html } from "../vendor/preact/preact.min.js";
import { showHelp } from "./dialogs.js";
import { shortcuts } from "./keyboard.js";
import { isSafe, page, switchPalette, switchTheme } from "./state.js";
import { Icon, IconButton } from "./ui.js";

export const PURPOSE = "Research use only, not for diagnosis";

/** What the server has to say besides the purpose, which stands in the bar. */
export const serverNotice = () => (page.about.notice ?? "").replace("For research, not for diagnosis.", "").trim();

export const Brand = () =>
  html`<a class="brand" href="#/" aria-label="NTRM, all slides"><img src="/page/icon.svg" alt="" />NTRM</a>`;

export const Back = () =>
  html`<a class="icon-button quiet" href="#/" title="All slides" aria-label="All slides"><${Icon} name="back" /></a>`;

export const Purpose = () => html`<span class="purpose">${PURPOSE}</span>`;

export const BarButtons = () =>
  html`<${IconButton} name="palette" label="Colours for colour-blind readers" data-palette aria-pressed=${isSafe()}
      onClick=${switchPalette} />
    <${IconButton} name="theme" label="Light or dark" onClick=${switchTheme} />
    <${IconButton} name="help" label="Keyboard shortcuts" onClick=${showHelp} />`;

export const PAGE_KEYS = shortcuts("Page", [
  ["b", "Colour-blind-safe colours", switchPalette],
  ["x", "Light or dark", switchTheme],
  ["?", "This list", showHelp],
]);
