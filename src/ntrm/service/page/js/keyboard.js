// Shortcuts. A view registers what its keys do; fields and open dialogs keep their keys to themselves.

let bindings = [];

const typing = (target) =>
  target.closest?.("input:not([type=checkbox]):not([type=range]), select, textarea, [contenteditable]");

document.addEventListener("keydown", (event) => {
  if (event.altKey || event.defaultPrevented) return;
  if (document.querySelector("dialog[open]") || typing(event.target)) return;
  // A button that has the focus keeps Enter and Space, a slider its arrows.
  if ((event.key === "Enter" || event.key === " ") && event.target.closest?.("button, a, summary, [role=button]"))
    return;
  if (
    event.key.startsWith("Arrow") &&
    event.target.closest?.("input[type=range], [role=slider], [role=tablist], [role=menu]")
  )
    return;
  const held = event.ctrlKey || event.metaKey;
  const fits = ({ keys, ctrl = false, when }) => keys.includes(event.key) && ctrl === held && (!when || when(event));
  const found = bindings.find(fits);
  if (!found) return;
  event.preventDefault();
  found.act(event);
});

/**
 * Takes over the keys of a view; returns how to give them back. A binding is
 * `{ keys: ["t"], says: "Tissue on or off", group: "View", act }`; with `ctrl` it is meant with Ctrl or ⌘ held, with
 * `when` only while that holds. The first that fits acts.
 */
export function bind(list) {
  bindings = list;
  return () => {
    if (bindings === list) bindings = [];
  };
}

/** What the help sheet lists. */
export const bound = () => bindings.filter((binding) => binding.says);
