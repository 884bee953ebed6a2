// Shortcuts of the slide view.

import { arrows, shortcuts } from "./keyboard.js";

const STEP = 0.12;

/** The bindings, in the order of the help sheet. */
export function viewBindings({ view, stage, layers, legend, region, shell, step, turn }) {
  const set = (change) => () => view.set(change());
  const layer = (name) =>
    set(() => (layers.has(name) ? { layer: view.layer === name ? view.version : name, compare: "off" } : {}));
  const compare = (mode) =>
    set(() => (layers.canCompare() ? { compare: view.compare === mode ? "off" : mode, layer: view.version } : {}));
  const overlay = () => ({ layer: view.layer === "none" ? view.version : "none", compare: "off" });
  const escape = () => {
    if (shell.closeMenu()) return;
    if (view.highlight) view.set({ highlight: null });
    else if (stage.drawing.outline) region.clear();
    else location.hash = "#/";
  };
  const tissue = ({ key }) => legend.names[key - 1] && legend.toggle(legend.names[key - 1]);
  return [
    ...shortcuts("Move", [
      [["+", "="], "Zoom", () => stage.zoom(1.6), { shown: ["+", "−"] }],
      ["-", null, () => stage.zoom(1 / 1.6)],
      arrows("Move the slide", (x, y) => stage.pan(x * STEP, y * STEP)),
      ["0", "Whole slide", () => stage.fit()],
      ["u", "Skin surface up", turn],
      ["n", "Next piece", () => step(1)],
      ["p", "Previous piece", () => step(-1)],
    ]),
    ...shortcuts("Layers", [
      ["t", "Overlay on or off", set(overlay)],
      ["i", "Coarse prediction", layer("coarse")],
      ["c", "Confidence", layer("confidence")],
      ["d", "Two versions side by side", compare("side")],
      ["w", "Swipe between two versions", compare("swipe")],
      ["[", "Weaker, stronger overlay", set(() => ({ opacity: Math.max(0, view.opacity - 0.1) })), { shown: ["[", "]"] }],
      ["]", null, set(() => ({ opacity: Math.min(1, view.opacity + 0.1) }))],
      [[..."123456789"], "A tissue on or off", tissue, { shown: ["1", "…", "9"] }],
    ]),
    ...shortcuts("Read", [
      ["m", "Lines of measurements", set(() => ({ lines: !view.lines }))],
      ["Enter", "Region in the middle", () => region.read(stage.middle)],
      ["l", "Tissues", () => shell.select("tissues", true)],
      ["g", "Relations", () => shell.select("relations", true)],
      ["s", "Measurements", () => shell.select("measures", true)],
    ]),
    ...shortcuts("Page", [["Escape", "Clear the selection, then back to the list", escape]]),
  ];
}
