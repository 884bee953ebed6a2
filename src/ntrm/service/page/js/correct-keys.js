// Shortcuts of the mode "Correct". They come before those of the view, and only count while the mode is on.

import { byKey, REACH } from "./correct-panel.js";
import { WIDTHS } from "./correct-strokes.js";

const STEP = 0.06;
const GROUP = "Correct";
const clamp = (value, { least, most }) => Math.min(most, Math.max(least, value));

/** The bindings, in the order of the help sheet. */
export function correctBindings(correct, stage, shell) {
  const { acts, settings, choice, stroke } = correct;
  const when = () => correct.isOn;
  const key = (keys, says, act, more = {}) => ({ keys, says, group: GROUP, when, act, ...more });
  const tool = (letter, name, says) => key([letter], says, () => acts.set({ tool: name }));
  const named = () => byKey().filter((tissue) => tissue.key);
  const move = (name, x, y, says = null) => ({
    ...key([name], says, () => {
      stage.pan(x, y);
      correct.look();
    }),
    shown: ["←", "↑", "→", "↓"],
  });
  const beside = (name, x, y, says = null) =>
    key([name], says, () => correct.stepBeside(x, y), { shift: true, shown: ["Shift", "←", "↑", "→", "↓"] });
  const further = (sign) => () => {
    if (settings.tool === "brush") acts.set({ width: clamp(settings.width + 10 * sign, WIDTHS) });
    else acts.set({ reach: clamp(settings.reach * 2 ** (sign / 4), REACH) });
  };

  function enter(event) {
    if (!stroke.isEmpty) stroke.finish();
    else if (choice.name) acts.accept();
    else if (settings.tool === "pick" || choice.shape) correct.click(correct.place, event.shiftKey);
  }

  function space() {
    stage.drawing.set({ cross: !correct.hasStepped });
    if (settings.tool === "brush") stroke.add(stage.middle);
    else if (choice.preview) acts.toggleAt(correct.place);
    else correct.click(correct.place, true);
  }

  return [
    key(
      named().map((tissue) => tissue.key),
      "Name what is picked or under the pointer",
      (event) => acts.name(named().find((tissue) => tissue.key === event.key).name),
      { shown: ["1", "…", "9", named()[9]?.key, named()[10]?.key, named()[11]?.key].filter(Boolean) },
    ),
    key(["n"], "Next region, likely errors first; next part that would follow", () => correct.step(1)),
    key(["p"], "The previous one", () => correct.step(-1)),
    key(["N"], "Add the next or the previous region", () => correct.step(1, true), { shown: ["N", "P"] }),
    key(["P"], null, () => correct.step(-1, true)),
    beside("ArrowLeft", -1, 0, "Pick the neighbour on that side"),
    beside("ArrowRight", 1, 0),
    beside("ArrowUp", 0, -1),
    beside("ArrowDown", 0, 1),
    key(["Enter"], "Accept; or pick what is in the middle, finish a line", enter),
    key([" "], "Add or remove what is in the middle; next point of a line", space, { shown: ["Space"] }),
    key(["z"], "Undo", () => acts.writer.undo()),
    key(["Z"], "Redo", () => acts.writer.redo()),
    key(["z"], null, () => acts.writer.undo(), { ctrl: true }),
    key(["Z", "y"], null, () => acts.writer.redo(), { ctrl: true }),
    key([","], "Less far, further; narrower, wider brush", further(-1), { shown: [",", "."] }),
    key(["."], null, further(1)),
    key(["r"], "Parts or whole regions", () => acts.set({ whole: !settings.whole })),
    key(["o"], "Name only what I picked", () => acts.set({ only: !settings.only })),
    tool("v", "pick", "Pick"),
    tool("a", "lasso", "Lasso"),
    tool("f", "brush", "Brush"),
    tool("k", "divide", "Line to divide"),
    move("ArrowLeft", -STEP, 0, "Move the slide under the crosshair"),
    move("ArrowRight", STEP, 0),
    move("ArrowUp", 0, -STEP),
    move("ArrowDown", 0, STEP),
    key(["Escape"], "Discard; then end correcting", () => {
      if (!shell.closeMenu() && !acts.drop()) correct.toggle(false);
    }),
  ];
}
