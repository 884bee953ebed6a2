// Shortcuts. A view registers what its keys do; fields and open dialogs keep their keys to themselves.

let bindings = [];

const typing = (target) =>
  target.closest?.("input:not([type=checkbox]):not([type=range]), select, textarea, [contenteditable]");

document.addEventListener("keydown", (event) => {
  if (event.altKey || event.defaultPrevented) return;
  if (document.querySelector("dialog[open]") || typing(event.target)) return;
  // A button that has the focus keeps Enter and Space, a box to tick its Space, a slider its arrows.
  if ((event.key === "Enter" || event.key === " ") && event.target.closest?.("button, a, summary, [role=button]"))
    return;
  if (event.key === " " && event.target.closest?.("input[type=checkbox]")) return;
  if (
    event.key.startsWith("Arrow") &&
    event.target.closest?.("input[type=range], [role=slider], [role=tablist], [role=menu]")
  )
    return;
  const held = event.ctrlKey || event.metaKey;
  const fits = ({ keys, ctrl = false, shift = event.shiftKey, when }) =>
    keys.includes(event.key) && ctrl === held && shift === event.shiftKey && (!when || when(event));
  const found = bindings.find(fits);
  if (!found) return;
  event.preventDefault();
  found.act(event);
});

/**
 * Takes over the keys of a view; returns how to give them back. A binding is
 * `{ keys: ["t"], says: "Tissue on or off", group: "View", act }`; with `ctrl` it is meant with Ctrl or ⌘ held, with
 * `shift` with Shift or without it, with `when` only while that holds. The first that fits acts.
 */
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
