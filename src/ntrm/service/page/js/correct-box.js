// What is chosen, what would follow from its name, and the buttons that accept or drop it.

import { html, useLayoutEffect, useRef } from "../vendor/preact/preact.min.js";
import { sumOf } from "./correct-choice.js";
import { area, count } from "./format.js";
import { Dot, titleOf } from "./palette.js";
import { change } from "./state.js";
import { Button } from "./ui.js";

const HINTS = {
  pick: "Click a part, then press the key of the right tissue. Shift and click adds another part.",
  lasso: "Draw around parts, then press the key of the right tissue.",
  brush: "Press the key of a tissue, then paint. z undoes a stroke.",
  divide: "Draw a line through a region, click the side with the wrong name, press the key of the right tissue.",
};
const FEW = 40;

export function ChoiceBox({ correct }) {
  const { choice, message } = correct;
  const follows = followWords(choice);
  const touched = touchedWords(choice);
  const key = (text) => html`<kbd aria-hidden="true">${text}</kbd>`;
  return html`<div class="choice-box">
    <p class="chosen"><${Chosen} correct=${correct} /></p>
    <p class="follows" role="status" hidden=${!follows}>${follows}</p>
    <p class="touched" hidden=${!touched}>${touched}</p>
    <ul class="small groups">${(choice.preview?.followed ?? []).map(drawGroup)}</ul>
    <div class="choice-buttons" hidden=${choice.isEmpty}>
      <${Button} kind="primary small" hidden=${!choice.name} disabled=${choice.isAsking}
        onClick=${() => correct.accept()}>Accept${key("↵")}</${Button}>
      <${Button} kind="small" onClick=${() => correct.drop()}>Drop${key("Esc")}</${Button}>
    </div>
    <p class=${`told ${message.strong ? "strong" : ""}`} hidden=${!message.text}>${message.text}</p>
    <${Followers} correct=${correct} />
  </div>`;
}

/** What follows, part by part. It stays as it is until something else is proposed, and with it the focus. */
function Followers({ correct }) {
  const { choice } = correct;
  const { preview } = choice;
  const details = useRef(null);
  const out = preview ? preview.out : choice.out;
  const parts = (preview?.parts ?? []).slice(0, FEW);
  const more = sumOf(preview?.followed ?? [], "regions") - parts.length;
  const hadFocus = details.current?.querySelector("ul").contains(document.activeElement);
  useLayoutEffect(() => {
    if (hadFocus) details.current.firstElementChild.focus();
  }, [preview]);
  return html`<details class="small" hidden=${!parts.length && !choice.out.length} ref=${details}>
    <summary>What follows, and why</summary>
    <ul class="followers">
      ${out.map((part) => html`<${Follower} ...${{ part, correct }} why="Excluded" act="Include" />`)}
      ${parts.map((part) => html`<${Follower} ...${{ part, correct }} why=${part.why} act="Exclude" />`)}
      ${more > 0 && html`<li class="muted">and ${count(more, "smaller part")}; click them on the slide</li>`}
    </ul>
  </details>`;
}

function Follower({ part, correct, why, act }) {
  const { x, y, tissue, network_tissue: network, area_mm2: mm2 } = part;
  const [show, hide] = [[x, y], null].map((marked) => () => change(correct, { marked }));
  return html`<li onPointerEnter=${show} onPointerLeave=${hide} onFocusIn=${show} onFocusOut=${hide}>
    <${Dot} of=${tissue} />
    <span>${network}, ${area(mm2)}. <span class="muted">${why}</span></span>
    <${Button} kind="small quiet" aria-label=${`${act}: ${network}, ${area(mm2)}`}
      onClick=${() => correct.exclude([x, y])}>${act}</${Button}>
  </li>`;
}

const hint = (tool, whole) =>
  whole ? HINTS[tool].replace("a part", "a region").replace("parts", "regions") : HINTS[tool];

function Chosen({ correct: { choice, settings } }) {
  if (!choice.isEmpty)
    return html`${chosenWords(choice)}${
      choice.name && html`${" → "}<${Dot} of=${choice.name} /><strong>${titleOf(choice.name)}</strong>`
    }`;
  if (settings.brush) return html`${"The brush paints "}<strong>${titleOf(settings.brush)}</strong>.`;
  return html`<span class="muted">${hint(settings.tool, choice.takesWhole)}</span>`;
}

function chosenWords({ shape, lasso, preview, parts }) {
  if (shape) return shape.kind === "brush" ? "A stroke" : "A dividing line";
  if (lasso) {
    const { named } = preview ?? {};
    return named ? `${count(named.regions, "part")}, ${area(named.area_mm2)}` : "Parts inside the line";
  }
  const names = [...new Set(parts.map((part) => part.tissue))].join(", ");
  return `${count(parts.length, parts[0].whole ? "region" : "part")}, ${area(sumOf(parts, "area_mm2"))}, ${names}`;
}

function followWords(choice) {
  if (!choice.name || !choice.spreads) return "";
  if (choice.isAsking) return "Looking for what would follow …";
  if (!choice.preview) return "What would follow could not be computed. Accept tries again.";
  const { followed } = choice.preview;
  const regions = sumOf(followed, "regions");
  const mm2 = sumOf(followed, "area_mm2");
  const out = choice.out.length ? ` ${count(choice.out.length, "part")} excluded.` : "";
  if (!regions) return `Nothing else would follow.${out}`;
  return `${count(regions, "other part")} would follow, ${area(mm2)}.${out}`;
}

/** What was accepted before and would get another name, by the steps in which that was. */
function touchedWords({ preview }) {
  const touched = (preview?.touched ?? []).map(({ step, area_mm2: mm2 }) => `step ${step} (${area(mm2)})`);
  return touched.length ? `This changes what was accepted in ${touched.join(", ")}.` : "";
}

function drawGroup({ tissue, from, area_mm2: mm2 }) {
  const sources = Object.entries(from ?? {})
    .sort((one, other) => other[1] - one[1])
    .map(([name, size]) => `${name} ${area(size)}`)
    .join(", ");
  return html`<li key=${tissue}><${Dot} of=${tissue} /> ${tissue} ${area(mm2)}, from ${sources}</li>`;
}
