// Shortcuts. A view registers what its keys do; fields and open dialogs keep their keys to themselves.

const PRESSED = "button, a, summary, [role=button]";
let bindings = [];

const typing = (target) =>
  target.closest?.("input:not([type=checkbox]):not([type=range]), select, textarea, [contenteditable]");

document.addEventListener("keydown", (event) => {
  if (event.altKey || event.defaultPrevented) return;
  if (document.querySelector("dialog[open]") || typing(event.target)) return;
  // A button that has the focus keeps Enter and Space, a box to tick its Space, a slider its arrows.
  const kept = { Enter: PRESSED, " ": `${PRESSED}, input[type=checkbox]` }[event.key];
  const moved = event.key.startsWith("Arrow") && "input[type=range], [role=slider], [role=tablist], [role=menu]";
  if ((kept || moved) && event.target.closest?.(kept || moved)) return;
  const held = event.ctrlKey || event.metaKey;
  const fits = ({ keys, ctrl = false, shift = event.shiftKey, when }) =>
    keys.includes(event.key) && ctrl === held && shift === event.shiftKey && (!when || when(event));
  const found = bindings.find(fits);
  if (!found) return;
  event.preventDefault();
  found.act(event);
});

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/**
 * What keys do, for `bind`: rows are [keys, what the help sheet says or null, act(event), more]. `more` and `common` may
 * hold: `ctrl`, with Ctrl or ⌘ held; `shift`, with Shift or without it; `when`, only while that holds; `shown`, the keys
 * as the help sheet writes them.
 */
export const shortcuts = (group, rows, common = {}) =>
  rows.map(([keys, says, act, more]) => ({ keys: [keys].flat(), says, group, act, ...common, ...more }));

/** A row of `shortcuts` for the arrow keys; `act(x, y)` with the direction. */
export const arrows = (says, act, more = {}) => [
  Object.keys(ARROWS),
  says,
  (event) => act(...ARROWS[event.key]),
  { shown: ["←", "↑", "→", "↓"], ...more },
];

/** Takes over the keys of a view; returns how to give them back. The first shortcut that fits acts. */
export function bind(list) {
  bindings = list;
  return () => {
    if (bindings === list) bindings = [];
  };
}

/** What the help sheet lists: what acts now, without keys that an earlier binding has taken over. */
export function bound() {
  const taken = new Set();
  return bindings
    .filter(({ when }) => !when || when())
    .filter(({ keys, ctrl = false, shift = "any", says }) => {
      const free = keys.filter((key) => !taken.has(`${ctrl} ${shift} ${key}`));
      for (const key of free) taken.add(`${ctrl} ${shift} ${key}`);
      return says && free.length;
    });
}
