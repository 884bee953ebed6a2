// Makes elements. Text only ever becomes text nodes: nothing that a slide or a server says is read as markup.

const SVG = "http://www.w3.org/2000/svg";

/**
 * An HTML element: `h("p.small.muted", { properties }, ...children)`, where classes, properties and children may be left
 * out. Properties by name, `on` for listeners, `aria-*`, `data-*` and `role` as attributes.
 */
export function h(words, ...rest) {
  const [tag, ...classes] = words.split(".");
  return filled(document.createElement(tag), classes, rest);
}

/** The same for SVG. */
export function s(words, ...rest) {
  const [tag, ...classes] = words.split(".");
  return filled(document.createElementNS(SVG, tag), classes, rest);
}

function filled(element, classes, rest) {
  element.classList.add(...classes);
  put(element, rest[0]?.constructor === Object ? rest.shift() : {});
  element.append(...rest.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Gives an element properties as `h` does. */
export function put(element, properties) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") Object.entries(value).forEach(([event, listener]) => element.addEventListener(event, listener));
    else if (name === "style") Object.entries(value).forEach(([key, text]) => element.style.setProperty(key, text));
    else if (name === "class") element.setAttribute("class", value);
    else if (name in element && !(element instanceof SVGElement) && !name.includes("-")) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
}

/** Sets text only if it differs, so that screen readers and selections are left alone. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const PATHS = {
  back: "M10 3 5 8l5 5",
  next: "M6 3l5 5-5 5",
  plus: "M8 3v10M3 8h10",
  minus: "M3 8h10",
  fit: "M2.5 6v-3.5h3.5M10 2.5h3.5v3.5M13.5 10v3.5h-3.5M6 13.5h-3.5v-3.5",
  surface: "M8 13V4M4.5 7.5 8 4l3.5 3.5M2.5 1.5h11",
  download: "M8 2v8M4.5 7 8 10.5 11.5 7M2.5 13.5h11",
  upload: "M8 11V3M4.5 6.5 8 3l3.5 3.5M2.5 13.5h11",
  search: "M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9ZM10.5 10.5 14 14",
  slides: "M2.5 4.5h11v7h-11zM5 8h2.5M9.5 6.5l2 3",
  theme: "M8 2.5a5.5 5.5 0 1 0 0 11zM8 2.5a5.5 5.5 0 0 1 0 11",
  palette:
    "M8 2.5a5.5 5.5 0 1 0 0 11c1.4 0 1.2-1.4.8-2-.5-.9 0-1.7 1-1.7h1.4c1.4 0 2.3-.8 2.3-2.3 0-2.8-2.4-5-5.5-5ZM5 7.2h.01M7.2 5h.01M10 5.4h.01",
  help: "M6 6.2a2 2 0 1 1 3 1.7c-.7.4-1 .8-1 1.6M8 11.8h.01M8 14a6 6 0 1 0 0-12 6 6 0 0 0 0 12Z",
  close: "M4 4l8 8M12 4l-8 8",
  bin: "M3 4.5h10M6.5 4.5v-2h3v2M4.5 4.5l.6 9h5.8l.6-9M6.8 7v4M9.2 7v4",
  warn: "M8 2.5 14 13H2zM8 6.5v3M8 11.3h.01",
  gone: "M2 6a9 9 0 0 1 12 0M4.5 8.8a5 5 0 0 1 7 0M8 12h.01M2.5 13.5l11-11",
  correct: "M3 13l.7-3L11 2.7l2.3 2.3L6 12.3zM9.5 4.2l2.3 2.3",
  undo: "M6 3 2.5 6.5 6 10M3 6.5h6.5a3.5 3.5 0 0 1 0 7H6",
  redo: "M10 3l3.5 3.5L10 10M13 6.5H6.5a3.5 3.5 0 0 0 0 7H10",
};

/** A line icon; decorative, the button around it carries the name. */
export function icon(name) {
  return s("svg.icon", { viewBox: "0 0 16 16", "aria-hidden": "true" }, s("path", { d: PATHS[name] }));
}

/** A button with words; `kind` is primary, small and quiet, or the like. */
export function button(words, act, kind = "", properties = {}) {
  return h("button", { type: "button", class: `button ${kind}`.trimEnd(), on: { click: act }, ...properties }, words);
}

/** A square button that shows an icon and is called `label`. */
export function iconButton(name, label, act, properties = {}) {
  return button(icon(name), act, "", { class: "icon-button", title: label, "aria-label": label, ...properties });
}

/** A bar from 0 to 100, whose inner element is as wide as what is done. */
export function progressBar(label, properties = {}) {
  const range = { role: "progressbar", "aria-label": label, "aria-valuemin": "0", "aria-valuemax": "100" };
  return h("div.progress", { ...range, ...properties }, h("span"));
}

/** The heading of a section of the panel, and what stands at its right end. */
export function panelHead(title, ...more) {
  return h("div.panel-head", h("h2", title), h("span.grow"), ...more);
}

/** What stands in the place of a view or a list: a picture, a title, and what can be done. */
export function notice(name, title, ...more) {
  return [icon(name), h("h2", title), ...more.map((each) => (typeof each === "string" ? h("p", each) : each))];
}

/** Tells a screen reader something that is otherwise only seen. */
export function say(text) {
  document.getElementById("says").textContent = text;
}

/** A radio group drawn as one row of buttons. `choices` is [[value, label, enabled]]. */
export function segments(label, choices, value, act) {
  const group = h("div.segments", { role: "radiogroup", "aria-label": label });
  const buttons = choices.map(([key, text, enabled = true, title]) =>
    button(text, () => act(key), "", { class: "", role: "radio", disabled: !enabled, title, "data-value": key }),
  );
  group.append(...buttons);
  group.select = (key) =>
    buttons.forEach((button) => {
      const chosen = button.dataset.value === key;
      button.setAttribute("aria-checked", String(chosen));
      button.tabIndex = chosen ? 0 : -1;
    });
  rove(group, buttons, (next) => next.click());
  group.select(value);
  return group;
}

/** Arrow keys in `group` move the focus around `items` that can be used, and call `act` with the next one. */
export function rove(group, items, act = () => {}) {
  group.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const open = items.filter((item) => !item.disabled && !item.hidden);
    const next = open[(open.indexOf(document.activeElement) + step + open.length) % open.length];
    next.focus();
    act(next);
  });
}

/** A box to tick with its label; `act(checked)`. */
export function tick(label, act) {
  const input = h("input", { type: "checkbox", on: { change: () => act(input.checked) } });
  return { element: h("label.switch", input, label), input };
}

/** A slider with its label and what it stands at; `act(value)`. `show(value, text)` moves it. */
export function slider(label, [min, max, step], act, name = label) {
  const moved = () => act(Number(input.value));
  const input = h("input", { type: "range", min, max, step, "aria-label": name, on: { input: moved } });
  const amount = h("output.number.muted");
  return {
    element: h("label.line", h("span", label), input, amount),
    input,
    show(value, text) {
      input.value = value;
      input.setAttribute("aria-valuetext", text);
      setText(amount, text);
    },
  };
}
