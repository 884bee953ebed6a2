// The legend: which tissues are shown, how much of each there is.

import { button, h, panelHead, setText } from "./dom.js";
import { area, share } from "./format.js";
import { colourOf, tissues } from "./palette.js";

/** A legend and `update(amounts)`. `view.hidden` holds the names of tissues that are off. */
export function makeLegend(view, changed) {
  const shown = tissues().filter((tissue) => !tissue.background);
  const rows = new Map(shown.map((tissue, index) => [tissue.name, makeRow(tissue, index)]));
  const names = shown.map((tissue) => tissue.name);
  const all = button("All", () => set([]), "small quiet");
  const none = button("None", () => set(names), "small quiet");
  const items = [...rows.values()].map((row) => row.element);
  const list = h("ul.legend", { "aria-label": "Tissues" }, items);
  const element = h("section", panelHead("Tissues", all, none), list);

  function set(hidden) {
    view.hidden = new Set(hidden);
    changed();
  }

  function makeRow(tissue, index) {
    const box = h("input", { type: "checkbox", on: { change: () => toggle(tissue.name) } });
    const dot = h("span.dot");
    const size = h("span.number.muted");
    const part = h("span.number.part");
    const words = { "aria-label": `Show only ${tissue.title}` };
    const only = button("only", () => solo(tissue.name), "small quiet only", words);
    const label = h(
      "label",
      { title: index < 9 ? `${tissue.title}, key ${index + 1}` : tissue.title },
      box,
      dot,
      tissue.name === tissue.title ? null : h("span.short", tissue.name),
      h("span.title", tissue.title),
    );
    return { element: h("li", { "data-tissue": tissue.name }, label, size, only, part), box, dot, size, part };
  }

  function toggle(name) {
    const hidden = new Set(view.hidden);
    if (!hidden.delete(name)) hidden.add(name);
    set(hidden);
  }

  function solo(name) {
    const others = names.filter((other) => other !== name);
    const already = !view.hidden.has(name) && others.every((other) => view.hidden.has(other));
    set(already ? [] : others);
  }

  return {
    element,
    toggle,
    names,
    update(amounts) {
      for (const [name, row] of rows) {
        const mm2 = amounts.areas[name] ?? 0;
        row.box.checked = !view.hidden.has(name);
        row.dot.style.background = colourOf(name);
        row.element.classList.toggle("absent", !mm2);
        setText(row.size, mm2 ? area(mm2) : "–");
        setText(row.part, mm2 ? share(amounts.shares[name]) : "");
        row.element.style.setProperty("--share", amounts.shares[name] ?? 0);
      }
    },
  };
}
