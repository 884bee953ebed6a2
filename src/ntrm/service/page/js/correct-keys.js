// Shortcuts of the mode "Correct". They come before those of the view, and only count while the mode is on.

import { byKey, KEYS, REACH } from "./correct-panel.js";
import { WIDTHS } from "./correct-strokes.js";
import { arrows, shortcuts } from "./keyboard.js";

const STEP = 0.06;
const clamp = (value, { least, most }) => Math.min(most, Math.max(least, value));

/** The bindings, in the order of the help sheet. */
export function correctBindings(view) {
  const { correct, stage } = view;
  const { settings, choice, stroke, writer } = correct;
  const name = ({ key }) => {
    const tissue = byKey().find((each) => each.key === key);
    if (tissue) correct.name(tissue.name);
  };
  const tool = (name) => () => correct.set({ tool: name });
  const undo = () => writer.undo();
  const redo = () => writer.redo();
  const further = (sign) => () => {
    if (settings.tool === "brush") correct.set({ width: clamp(settings.width + 10 * sign, WIDTHS) });
    else correct.set({ reach: clamp(settings.reach * 2 ** (sign / 4), REACH) });
  };

  function enter(event) {
    if (!stroke.isEmpty) stroke.finish();
    else if (choice.name) correct.accept();
    else if (settings.tool === "pick" || choice.shape) correct.click(correct.place, event.shiftKey);
  }

  function space() {
    stage.drawing.set({ cross: !correct.stepped });
    if (settings.tool === "brush") stroke.add(stage.middle);
    else if (choice.preview) correct.exclude(correct.place);
    else correct.click(correct.place, true);
  }

  function move(x, y) {
    stage.pan(x * STEP, y * STEP);
    correct.look();
  }

  function escape() {
    if (view.isMenuOpen) view.set({ isMenuOpen: false });
    else if (!correct.drop()) correct.toggle(false);
  }

  return shortcuts(
    "Correct",
    [
      [
        KEYS,
        "Name what is picked or under the pointer",
        name,
        { shown: ["1", "…", ...byKey().slice(8, 12).map((tissue) => tissue.key)] },
      ],
      ["n", "The next region, likely errors first; next part that would follow", () => correct.step(1)],
      ["p", "The previous one", () => correct.step(-1)],
      ["N", "Add the next or the previous region", () => correct.step(1, true), { shown: ["N", "P"] }],
      ["P", null, () => correct.step(-1, true)],
      arrows("Pick the neighbour on that side", (x, y) => correct.stepBeside(x, y), {
        shift: true,
        shown: ["Shift", "←", "↑", "→", "↓"],
      }),
      ["Enter", "Accept; or pick what is in the middle, finish a line", enter],
      [" ", "Add or remove what is in the middle; next point of a line", space, { shown: ["Space"] }],
      ["z", "Undo", undo],
      ["Z", "Redo", redo],
      ["z", null, undo, { ctrl: true }],
      [["Z", "y"], null, redo, { ctrl: true }],
      [",", "Less far, further; narrower, wider brush", further(-1), { shown: [",", "."] }],
      [".", null, further(1)],
      ["r", "Parts or whole regions", () => correct.set({ whole: !settings.whole })],
      ["o", "Name only what I picked", () => correct.set({ only: !settings.only })],
      ["v", "Pick", tool("pick")],
      ["a", "Lasso", tool("lasso")],
      ["f", "Brush", tool("brush")],
      ["k", "Line to divide", tool("divide")],
      arrows("Move the slide under the crosshair", move),
      ["Escape", "Discard; then end correcting", escape],
    ],
    { when: () => correct.isOn },
  );
}
