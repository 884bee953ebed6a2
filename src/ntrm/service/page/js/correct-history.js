// Steps that were done, undone and done again, and the initials that go with new ones.

import { capital, resultWords, stepWords } from "./correct-words.js";
import { button, h, iconButton, panelHead, setText } from "./dom.js";
import { moment } from "./format.js";
import { colourOf, dotOf } from "./palette.js";
import { initialsGiven, setInitials } from "./prefs.js";

const INITIALS = 8; // characters that the log takes
const FEW = 30;

/** The list and `update()`. */
export function makeHistory(store, { writer }) {
  const undo = iconButton("undo", "Undo (z)", () => writer.undo());
  const redo = iconButton("redo", "Redo (Shift z)", () => writer.redo());
  const list = h("ol.steps");
  const none = h("p.small.muted", "Nothing was corrected.");
  const note = h("p.small.muted");
  const initials = h("input.field", {
    maxLength: INITIALS,
    value: initialsGiven() ?? "",
    autocomplete: "off",
    spellcheck: false,
    on: { input: () => setInitials(initials.value) },
  });
  const element = h(
    "div.history",
    panelHead("Steps", undo, redo),
    note,
    none,
    list,
    h("label.initials.small", "Initials, optional: written with each step", initials),
  );
  let drawn = "";

  function update() {
    const { document } = store;
    const steps = (document?.steps ?? []).filter((step) => step.action === "name" || step.action === "draw");
    undo.disabled = !document?.undo;
    redo.disabled = !document?.redo;
    none.hidden = steps.length > 0;
    setText(note, resultWords(store));
    note.hidden = !note.textContent;
    const state = JSON.stringify(steps) + colourOf(steps[0]?.tissue);
    if (state === drawn) return;
    drawn = state;
    const rest = steps.length - FEW;
    list.replaceChildren(
      ...steps.reverse().slice(0, FEW).map(row),
      ...(rest > 0 ? [h("li.muted", `and ${rest} before these, in corrections.jsonl`)] : []),
    );
  }

  function row(step) {
    const back = button("Undo to here", () => writer.undoTo(step.number), "small quiet", {
      "aria-label": `Undo step ${step.number} and what came after it`,
      title: "Undo this and what came after it",
    });
    return h(
      "li",
      { class: step.active ? "" : "undone", "data-step": step.number },
      h("span.number.muted", step.number),
      dotOf(step.tissue),
      h(
        "span.words",
        capital(stepWords(step)),
        h("span.muted", ` ${[moment(step.when), step.by].filter(Boolean).join(", ")}`),
      ),
      step.active ? back : h("span.muted.small", "undone"),
    );
  }

  return { element, update };
}
