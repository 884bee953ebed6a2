// What panels are made of. Text only ever becomes text: nothing that a slide or a server says is read as markup.

import { html } from "../vendor/preact/preact.min.js";

const PATHS = {
  back: "M10 3 5 8l5 5",
  next: "M6 3l5 5-5 5",
  plus: "M8 3v10M3 8h10",
  minus: "M3 8h10",
  fit: "M2.5 6v-3.5h3.5M10 2.5h3.5v3.5M13.5 10v3.5h-3.5M6 13.5h-3.5v-3.5",
  surface: "M8 13V4M4.5 7.5 8 4l3.5 3.5M2.5 1.5h11",
  download: "M8 2v8M4.5 7 8 10.5 11.5 7M2.5 13.5h11",
  upload: "M8 11V3M4.5 6.5 8 3l3.5 3.5M2.5 13.5h11",
  search: "M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9ZM10.5 10.5 14 14",
  slides: "M2.5 4.5h11v7h-11zM5 8h2.5M9.5 6.5l2 3",
  theme: "M8 2.5a5.5 5.5 0 1 0 0 11zM8 2.5a5.5 5.5 0 0 1 0 11",
  palette:
    "M8 2.5a5.5 5.5 0 1 0 0 11c1.4 0 1.2-1.4.8-2-.5-.9 0-1.7 1-1.7h1.4c1.4 0 2.3-.8 2.3-2.3 0-2.8-2.4-5-5.5-5ZM5 7.2h.01M7.2 5h.01M10 5.4h.01",
  help: "M6 6.2a2 2 0 1 1 3 1.7c-.7.4-1 .8-1 1.6M8 11.8h.01M8 14a6 6 0 1 0 0-12 6 6 0 0 0 0 12Z",
  close: "M4 4l8 8M12 4l-8 8",
  bin: "M3 4.5h10M6.5 4.5v-2h3v2M4.5 4.5l.6 9h5.8l.6-9M6.8 7v4M9.2 7v4",
  warn: "M8 2.5 14 13H2zM8 6.5v3M8 11.3h.01",
  gone: "M2 6a9 9 0 0 1 12 0M4.5 8.8a5 5 0 0 1 7 0M8 12h.01M2.5 13.5l11-11",
  correct: "M3 13l.7-3L11 2.7l2.3 2.3L6 12.3zM9.5 4.2l2.3 2.3",
  undo: "M6 3 2.5 6.5 6 10M3 6.5h6.5a3.5 3.5 0 0 1 0 7H6",
  redo: "M10 3l3.5 3.5L10 10M13 6.5H6.5a3.5 3.5 0 0 0 0 7H10",
};

/** A line icon; decorative, the button around it carries the name. */
export const Icon = ({ name }) =>
  html`<svg class="icon" viewBox="0 0 16 16" aria-hidden="true"><path d=${PATHS[name]} /></svg>`;

/** A button with words; `kind` is primary, small and quiet, or the like. */
export const Button = ({ kind = "", ...more }) =>
  html`<button type="button" class=${`button ${kind}`.trimEnd()} ...${more} />`;

/** A square button that shows an icon and is called `label`. */
export const IconButton = ({ name, label, ...more }) =>
  html`<button type="button" class="icon-button" title=${label} aria-label=${label} ...${more}>
    <${Icon} name=${name} />
  </button>`;

/** A bar that is so many per cent full; a light runs through it while `busy`, where there is nothing to count. */
export const Progress = ({ label, percent = 0, words, busy, wide }) =>
  html`<div class=${classNames("progress", { wide, busy })} role="progressbar" aria-label=${label} aria-valuemin="0"
    aria-valuemax="100" aria-valuenow=${percent} aria-valuetext=${words}>
    <span style=${{ width: `${percent}%` }} />
  </div>`;

/** What stands in the place of a view or a list: a picture, a title, words, and what can be done. */
export const Notice = ({ icon, title, words, children }) =>
  html`<${Icon} name=${icon} /><h2>${title}</h2>${words && html`<p>${words}</p>`}${children}`;

/** Label and value, one pair a line. */
export const Facts = ({ rows }) =>
  html`<dl class="facts-list">
    ${rows.map(([label, value]) => html`<div key=${label}><dt>${label}</dt><dd class="number">${value}</dd></div>`)}
  </dl>`;

/** `names` and those of `more` that hold, for a `class`. */
export const classNames = (names, more) =>
  [names, ...Object.keys(more).filter((name) => more[name])].filter(Boolean).join(" ");

/** Tells a screen reader something that is otherwise only seen. */
export function say(text) {
  document.getElementById("says").textContent = text;
}

/** Arrow keys move the focus in a group of buttons and links; radios and tabs are chosen as they are reached. */
export function rove(event) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  event.stopPropagation();
  const items = [...event.currentTarget.querySelectorAll("button, a")].filter((item) => !item.disabled && !item.hidden);
  const next = items[(items.indexOf(document.activeElement) + step + items.length) % items.length];
  next.focus();
  if (next.getAttribute("role") !== "menuitem") next.click();
}

/** A radio group drawn as one row of buttons. `choices` are { key, text, title, disabled, hidden }; `onPick(key)`. */
export const Segments = ({ label, choices, value, onPick, hidden }) =>
  html`<div class="segments" role="radiogroup" aria-label=${label} hidden=${hidden} onKeyDown=${rove}>
    ${choices.map(
      ({ key, text, ...more }) =>
        html`<button key=${key} type="button" role="radio" aria-checked=${key === value}
          tabindex=${key === value ? 0 : -1} onClick=${() => onPick(key)} ...${more}>${text}</button>`,
    )}
  </div>`;

/** A box to tick with its label. */
export const Tick = ({ label, onTick, ...more }) =>
  html`<label class="switch">
    <input type="checkbox" onChange=${({ target }) => onTick(target.checked)} ...${more} />${label}
  </label>`;

/** A slider with its label, and in words what it stands at. */
export const Slider = ({ label, name = label, range: [min, max, step], value, words, onMove, disabled, hidden }) =>
  html`<label class="line" hidden=${hidden}>
    <span>${label}</span>
    <input type="range" ...${{ min, max, step, value, disabled }} aria-label=${name} aria-valuetext=${words}
      onInput=${(event) => onMove(Number(event.target.value))} />
    <output class="number muted">${words}</output>
  </label>`;

/** The heading of a section of the panel, and what stands at its right end. */
export const PanelHead = ({ title, children }) =>
  html`<div class="panel-head"><h2>${title}</h2><span class="grow" />${children}</div>`;
