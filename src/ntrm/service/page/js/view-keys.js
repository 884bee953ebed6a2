// Shortcuts of the slide view.

import { arrows, shortcuts } from "./keyboard.js";
import { canCompare, hasLayer, toggleTissue } from "./layer-panel.js";
import { inLegend } from "./palette.js";
import { clearRegion, outlineOf } from "./region.js";

const STEP = 0.12;

/** The bindings, in the order of the help sheet. */
export function viewBindings(view) {
  const { stage } = view;
  const set = (change) => () => view.set(change());
  const layer = (name) =>
    set(() => (hasLayer(view, name) ? { layer: view.layer === name ? view.version : name, compare: "off" } : {}));
  const compare = (mode) =>
    set(() => (canCompare(view) ? { compare: view.compare === mode ? "off" : mode, layer: view.version } : {}));
  const overlay = () => ({ layer: view.layer === "none" ? view.version : "none", compare: "off" });
  const tissue = ({ key }) => {
    const chosen = inLegend()[key - 1];
    if (chosen) toggleTissue(view, chosen.name);
  };
  const escape = () => {
    if (view.isMenuOpen) view.set({ isMenuOpen: false });
    else if (view.highlight) view.set({ highlight: null });
    else if (outlineOf(view)) clearRegion(view);
    else location.hash = "#/";
  };
  return [
    ...shortcuts("Move", [
      [["+", "="], "Zoom", () => stage.zoom(1.6), { shown: ["+", "−"] }],
      ["-", null, () => stage.zoom(1 / 1.6)],
      arrows("Move the slide", (x, y) => stage.pan(x * STEP, y * STEP)),
      ["0", "Whole slide", () => stage.fit()],
      ["u", "Skin surface up", () => view.turn()],
      ["n", "Next piece", () => view.step(1)],
      ["p", "Previous piece", () => view.step(-1)],
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
      ["Enter", "Region in the middle", () => view.read(stage.middle)],
      ["l", "Tissues", () => view.showTab("tissues", true)],
      ["g", "Relations", () => view.showTab("relations", true)],
      ["s", "Measurements", () => view.showTab("measures", true)],
    ]),
    ...shortcuts("Page", [["Escape", "Clear the selection, then back to the list", escape]]),
  ];
}
