// What stands around an open slide: the bar with name, pieces and downloads, and the panel with its tabs.

import { html, useEffect } from "../vendor/preact/preact.min.js";
import { Back, BarButtons, PAGE_KEYS, PURPOSE, Purpose, serverNotice } from "./bar.js";
import { correctBindings } from "./correct-keys.js";
import { CorrectPanel } from "./correct-panel.js";
import { capital, correctedWords, modelWords, resultWords } from "./correct-words.js";
import { Downloads } from "./downloads.js";
import { familiarityLine, UnlikeBanner } from "./familiarity.js";
import { bind, shortcuts } from "./keyboard.js";
import { Layers, Legend } from "./layer-panel.js";
import { Measures } from "./measures.js";
import { Region } from "./region.js";
import { Relations } from "./relations-panel.js";
import { CancerChips } from "./row.js";
import { StageView } from "./stage.js";
import { Button, Icon, IconButton, rove } from "./ui.js";
import { viewBindings } from "./view-keys.js";

/** The panels, in the order of their tabs. */
const TABS = {
  tissues: ["Tissues", [Layers, Legend]],
  relations: ["Relations", [Relations]],
  measures: ["Measures", [Measures]],
  region: ["Region", [Region]],
  correct: ["Correct", [CorrectPanel]],
};

const MISSING =
  "The slide's file was not found in the folders of this server: the segmentation is shown on a white background.";

/** An open slide; `view` is opened once its stage is on the page, and closed with it. */
export function OpenSlide({ view }) {
  const { slide, summary, isCorrected } = view;
  useEffect(() => {
    let unbind = null;
    let left = false;
    view.open().then(() => {
      if (left) return;
      unbind = bind([
        ...correctBindings(view),
        ...viewBindings(view),
        ...shortcuts("Correct", [["e", "Correct, or end it", () => view.correct.toggle()]]),
        ...PAGE_KEYS,
      ]);
    });
    return () => {
      left = true;
      unbind?.();
      view.close();
    };
  }, [view]);
  return html`<${Bar} view=${view} />
    <main class="slide" id="main" tabindex="-1" data-version=${isCorrected ? "corrected" : "network"}>
      <div class="stage-column">
        <${UnlikeBanner} slide=${slide} summary=${summary} />
        ${!slide.has_image && html`<p class="strip no-image"><${Icon} name="warn" /><span>${MISSING}</span></p>`}
        <${StageView} stage=${view.stage} />
      </div>
      <aside class="panel" aria-label="Readings of the slide">
        <${Tabs} view=${view} />
        <${Foot} view=${view} />
      </aside>
    </main>`;
}

function Bar({ view }) {
  const { slide, correct } = view;
  return html`<header class="bar slide-bar">
    <${Back} />
    <h1 class="slide-name" title=${slide.name}>${slide.name || slide.slide_id}</h1>
    <${Chips} view=${view} />
    <span class="grow" />
    <${Purpose} />
    <${Stepper} view=${view} />
    <${Button} title="Correct (e)" aria-label="Correct" aria-pressed=${correct.isOn} onClick=${() => correct.toggle()}>
      <${Icon} name="correct" /><span class="wide-only">Correct</span>
    </${Button}>
    <${Downloads} view=${view} />
    <${BarButtons} />
  </header>`;
}

function Chips({ view: { slide, readings, isCorrected, store } }) {
  const cancers = Object.entries(readings.summary.cancers).map(([name, found]) => ({ name, ...found }));
  const words = isCorrected && correctedWords(store);
  const chip = (icon, kind, text) =>
    html`<span class=${`chip ${kind}`} title=${text}><${Icon} name=${icon} /><span class="cut">${text}</span></span>`;
  return html`<div class="chips">
    <${CancerChips} of=${{ cancers }} />
    ${words && chip("correct", "corrected", words)}
    ${(slide.quality_warnings ?? []).map((warning) => chip("warn", "warn", warning))}
  </div>`;
}

const Stepper = ({ view, view: { pieces, piece } }) =>
  html`<div class="stepper" hidden=${pieces.length < 2}>
    <${IconButton} name="back" label="Previous piece" onClick=${() => view.step(-1)} />
    <span class="number" role="status">
      ${piece === null ? `All ${pieces.length} pieces` : `Piece ${piece} of ${pieces.length}`}
    </span>
    <${IconButton} name="next" label="Next piece" onClick=${() => view.step(1)} />
  </div>`;

function Tabs({ view }) {
  const { isCorrected, store } = view;
  const note = isCorrected && !store.isMeasured ? resultWords(store) : "";
  return html`<div class="tabs" role="tablist" aria-label="Readings" onKeyDown=${rove}>
      ${Object.entries(TABS).map(
        ([key, [label]]) =>
          html`<button key=${key} type="button" role="tab" id=${`tab-${key}`} aria-controls=${`panel-${key}`}
            aria-selected=${view.tab === key} tabindex=${view.tab === key ? 0 : -1} data-tab=${key}
            onClick=${() => view.showTab(key)}>${label}</button>`,
      )}
    </div>
    <p class="version-note small" role="status" hidden=${!note}>${note}</p>
    ${Object.entries(TABS).map(
      ([key, [, panels]]) =>
        html`<div key=${key} class="tab-body" role="tabpanel" id=${`panel-${key}`} aria-labelledby=${`tab-${key}`}
          hidden=${view.tab !== key}>${panels.map((Panel) => html`<${Panel} view=${view} />`)}</div>`,
    )}`;
}

const Foot = ({ view: { slide, summary } }) =>
  html`<footer class="panel-foot small muted">
    <span>${PURPOSE}.</span>
    <span class="wide-only">${` ${capital(modelWords(summary))}. ${serverNotice()}`}</span>
    <span class="familiarity">${` ${familiarityLine(slide)}`}</span>
  </footer>`;
