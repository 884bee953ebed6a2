// What is chosen, what would follow from its name, and the buttons that accept or drop it.

import { sumOf } from "./correct-choice.js";
import { button, h, setText } from "./dom.js";
import { area, count } from "./format.js";
import { dotOf, titleOf } from "./palette.js";

const HINTS = {
  pick: "Click a part, then press the key of the right tissue. Shift and click adds another part.",
  lasso: "Draw around parts, then press the key of the right tissue.",
  brush: "Press the key of a tissue, then paint. z undoes a stroke.",
  divide: "Draw a line through a region, click the side with the wrong name, press the key of the right tissue.",
};
const FEW = 40;

/** The box and `update(message)`. */
export function makeChoiceBox({ settings, choice, acts }) {
  const what = h("p.chosen");
  const follows = h("p.follows", { role: "status" });
  const groups = h("ul.small.groups");
  const cap = (key) => h("kbd", { "aria-hidden": "true" }, key);
  const yes = button(["Accept", cap("↵")], acts.accept, "primary small");
  const no = button(["Drop", cap("Esc")], acts.drop, "small");
  const list = h("ul.followers");
  const details = h("details.small", h("summary", "What follows, and why"), list);
  const buttons = h("div.choice-buttons", yes, no);
  const told = h("p.told");
  const element = h("div.choice-box", what, follows, groups, buttons, told, details);
  let drawn = null;

  function update({ text, strong }) {
    const { preview, isAsking, name } = choice;
    what.replaceChildren(...chosen(choice, settings));
    setText(follows, name ? followWords(choice) : "");
    follows.hidden = !follows.textContent;
    groups.replaceChildren(...(preview?.followed ?? []).map(drawGroup));
    setText(told, text);
    told.hidden = !text;
    told.classList.toggle("strong", strong);
    buttons.hidden = choice.isEmpty;
    yes.hidden = !name;
    yes.disabled = isAsking;
    details.hidden = !preview?.parts.length && !choice.out.length;
    // While nothing else is proposed the list stays as it is, and with it the focus.
    if (drawn === preview) return;
    drawn = preview;
    if (list.contains(document.activeElement)) details.firstElementChild.focus();
    list.replaceChildren(...rows(preview, choice.out));
  }

  function rows(preview, out) {
    const parts = (preview?.parts ?? []).slice(0, FEW);
    const more = choice.count - out.length - parts.length;
    return [
      ...out.map((part) => row(part, "Excluded", "Include")),
      ...parts.map((part) => row(part, part.why, "Exclude")),
      more > 0 ? h("li.muted", `and ${count(more, "smaller part")}; click them on the slide`) : null,
    ].filter(Boolean);
  }

  function row(part, why, act) {
    const place = [part.x, part.y];
    const show = () => acts.mark(place);
    const hide = () => acts.mark(null);
    const label = `${act}: ${part.network_tissue}, ${area(part.area_mm2)}`;
    return h(
      "li",
      { on: { pointerenter: show, pointerleave: hide, focusin: show, focusout: hide } },
      dotOf(part.tissue),
      h("span", `${part.network_tissue}, ${area(part.area_mm2)}. `, h("span.muted", why)),
      button(act, () => acts.toggleAt(place), "small quiet", { "aria-label": label }),
    );
  }

  return { element, update };
}

const hint = (tool, whole) =>
  whole ? HINTS[tool].replace("a part", "a region").replace("parts", "regions") : HINTS[tool];

function chosen(choice, settings) {
  const arrow = choice.name ? [" → ", dotOf(choice.name), h("strong", titleOf(choice.name))] : [];
  if (choice.isEmpty)
    return settings.brush
      ? ["The brush paints ", h("strong", titleOf(settings.brush)), "."]
      : [h("span.muted", hint(settings.tool, choice.takesWhole))];
  if (choice.shape) return [choice.shape.kind === "brush" ? "A stroke" : "A dividing line", ...arrow];
  if (choice.lasso) {
    const { named } = choice.preview ?? {};
    return [named ? `${count(named.regions, "part")}, ${area(named.area_mm2)}` : "Parts inside the line", ...arrow];
  }
  const word = choice.parts[0].whole ? "region" : "part";
  const mm2 = sumOf(choice.parts, "area_mm2");
  const names = [...new Set(choice.parts.map((part) => part.tissue))].join(", ");
  return [`${count(choice.parts.length, word)}, ${area(mm2)}, ${names}`, ...arrow];
}

function followWords(choice) {
  if (!choice.spreads) return "";
  if (choice.isAsking) return "Looking for what would follow …";
  if (!choice.preview) return "What would follow could not be computed. Accept tries again.";
  const { followed } = choice.preview;
  const regions = sumOf(followed, "regions");
  const mm2 = sumOf(followed, "area_mm2");
  const out = choice.out.length ? ` ${count(choice.out.length, "part")} excluded.` : "";
  if (!regions) return `Nothing else would follow.${out}`;
  return `${count(regions, "other part")} would follow, ${area(mm2)}.${out}`;
}

function drawGroup({ tissue, from, area_mm2: mm2 }) {
  const sources = Object.entries(from ?? {})
    .sort((one, other) => other[1] - one[1])
    .map(([name, size]) => `${name} ${area(size)}`)
    .join(", ");
  return h("li", dotOf(tissue), ` ${tissue} ${area(mm2)}, from ${sources}`);
}
