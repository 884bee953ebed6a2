// Shortcuts of the slide view.

const STEP = 0.12;

/** The bindings, in the order of the help sheet. */
export function viewBindings({ view, stage, layers, legend, region, shell, apply, step, turn }) {
  const set = (change) => () => {
    Object.assign(view, typeof change === "function" ? change() : change);
    apply();
  };
  const layer = (name) =>
    set(() => (layers.has(name) ? { layer: view.layer === name ? view.version : name, compare: "off" } : {}));
  const compare = (mode) =>
    set(() => (layers.canCompare() ? { compare: view.compare === mode ? "off" : mode, layer: view.version } : {}));
  const move = (key, x, y) => ({ keys: [key], act: () => stage.pan(x, y) });
  return [
    { keys: ["+", "="], shown: ["+", "−"], says: "Zoom", group: "Move", act: () => stage.zoom(1.6) },
    { keys: ["-"], act: () => stage.zoom(1 / 1.6) },
    {
      keys: ["ArrowLeft"],
      shown: ["←", "↑", "→", "↓"],
      says: "Move the slide",
      group: "Move",
      act: () => stage.pan(-STEP, 0),
    },
    move("ArrowRight", STEP, 0),
    move("ArrowUp", 0, -STEP),
    move("ArrowDown", 0, STEP),
    { keys: ["0"], says: "Whole slide", group: "Move", act: () => stage.fit() },
    { keys: ["u"], says: "Skin surface up", group: "Move", act: turn },
    { keys: ["n"], says: "Next piece", group: "Move", act: () => step(1) },
    { keys: ["p"], says: "Previous piece", group: "Move", act: () => step(-1) },
    {
      keys: ["t"],
      says: "Overlay on or off",
      group: "Layers",
      act: set(() => ({ layer: view.layer === "none" ? view.version : "none", compare: "off" })),
    },
    { keys: ["i"], says: "Coarse prediction", group: "Layers", act: layer("coarse") },
    { keys: ["c"], says: "Confidence", group: "Layers", act: layer("confidence") },
    { keys: ["d"], says: "Two versions side by side", group: "Layers", act: compare("side") },
    { keys: ["w"], says: "Swipe between two versions", group: "Layers", act: compare("swipe") },
    {
      keys: ["["],
      shown: ["[", "]"],
      says: "Weaker, stronger overlay",
      group: "Layers",
      act: set(() => ({ opacity: Math.max(0, view.opacity - 0.1) })),
    },
    { keys: ["]"], act: set(() => ({ opacity: Math.min(1, view.opacity + 0.1) })) },
    {
      keys: ["1", "2", "3", "4", "5", "6", "7", "8", "9"],
      shown: ["1", "…", "9"],
      says: "A tissue on or off",
      group: "Layers",
      act: (event) => legend.names[event.key - 1] && legend.toggle(legend.names[event.key - 1]),
    },
    { keys: ["m"], says: "Lines of measurements", group: "Read", act: set(() => ({ lines: !view.lines })) },
    { keys: ["Enter"], says: "Region in the middle", group: "Read", act: () => region.read(stage.middle) },
    { keys: ["l"], says: "Tissues", group: "Read", act: () => shell.select("tissues", true) },
    { keys: ["g"], says: "Relations", group: "Read", act: () => shell.select("relations", true) },
    { keys: ["s"], says: "Measurements", group: "Read", act: () => shell.select("measures", true) },
    {
      keys: ["Escape"],
      says: "Clear the selection, then back to the list",
      group: "Page",
      act: () => {
        if (shell.closeMenu()) return;
        if (view.highlight) set({ highlight: null })();
        else if (stage.drawing.outline) region.clear();
        else location.hash = "#/";
      },
    },
  ];
}
