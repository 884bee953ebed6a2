// The few questions the page asks, and the sheet of shortcuts.

import * as api from "./api.js";
import { button, h, icon } from "./dom.js";
import { bound } from "./keyboard.js";
import { uploads } from "./upload.js";

function open(label, inside) {
  const dialog = h("dialog", { "aria-label": label }, inside);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

const closer = (text = "Close") => button(text, (event) => event.target.closest("dialog").close());

/** µm per pixel as a number, or null. People write commas, too. */
export function readMpp(text) {
  const value = Number(text.trim().replace(",", "."));
  return text.trim() && Number.isFinite(value) && value > 0 ? value : null;
}

/** The shortcuts of the view that is open. */
export function showHelp() {
  const groups = Map.groupBy(bound(), (binding) => binding.group);
  const lists = [...groups].map(([title, bindings]) => [h("h3", title), h("dl.keys", bindings.map(shortcut))]);
  const inside = h("div.inside", h("h2", "Keyboard shortcuts"), ...lists.flat(), h("div.actions", closer()));
  const sheet = open("Keyboard shortcuts", inside);
  sheet.scrollTop = 0; // the button below has the focus
}

function shortcut({ keys, shown = keys, says }) {
  const caps = shown.map((key) => h("kbd", key));
  return h("div", h("dt", caps), h("dd", says));
}

/** What was answered: the value of the button that closed the dialog, empty for none. */
const answer = (dialog) =>
  new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue)));

const submitter = (text, kind, value = "yes") => h("button", { class: `button ${kind}`, value }, text);

/** Asks before something is lost; resolves to true or false. */
export async function confirmLoss(title, text, act) {
  const buttons = h("div.actions", closer("Keep it"), submitter(act, "danger"));
  return (
    (await answer(open(title, h("form.inside", { method: "dialog" }, h("h2", title), h("p", text), buttons)))) === "yes"
  );
}

/** Asks for µm per pixel of a file that does not tell it; resolves to a number or null. */
async function askMpp(name) {
  const field = h("input.field", { inputMode: "decimal", placeholder: "for example 0.25", autocomplete: "off" });
  const wrong = h("p.wrong", { role: "alert" });
  const why =
    `“${name}” does not state its µm per pixel, and NTRM never guesses it. ` +
    "See the scanner's documentation: often 0.25 at 40×, 0.5 at 20×.";
  const buttons = h("div.actions", closer("Not now"), submitter("Segment", "primary"));
  const words = [h("h2", "How large is a pixel?"), h("p", why), h("label", "µm per pixel", field), wrong, buttons];
  const form = h("form.inside", { method: "dialog" }, words);
  form.addEventListener("submit", (event) => {
    if (readMpp(field.value) !== null) return;
    event.preventDefault();
    wrong.textContent = "Please enter a number above 0, such as 0.25.";
    field.focus();
  });
  const dialog = open("How large is a pixel?", form);
  field.focus();
  return (await answer(dialog)) && readMpp(field.value);
}

/** Queues a slide again; asks for µm per pixel where only that was missing. Resolves to whether it was queued. */
export async function retrySlide(slide) {
  const unmeasured = slide.error?.code === "mpp_missing";
  const mpp = unmeasured ? await askMpp(slide.name) : null;
  if (unmeasured && !mpp) return false;
  await api.retry(slide.id, mpp);
  return true;
}

/** Adds slides from this computer or, where the server allows a folder, from its own disk. */
export function askForSlides(serverPaths) {
  const picker = h("input.visually-hidden", { type: "file", multiple: true, tabIndex: -1 });
  const choose = button([icon("upload"), "Choose files"], () => picker.click(), "primary");
  picker.addEventListener("change", () => {
    uploads.add(picker.files);
    dialog.close();
  });
  const path = h("input.field", { placeholder: "/slides/example.svs", autocomplete: "off", spellcheck: false });
  const mpp = h("input.field", { inputMode: "decimal", placeholder: "from the file", autocomplete: "off" });
  const wrong = h("p.wrong", { role: "alert" });
  const form = h(
    "form.inside",
    h("h2", "Add slides"),
    h(
      "p.muted",
      "SVS, NDPI, SCN, TIFF, PNG, JPEG. Files can also be dropped anywhere on the page. ",
      "Slides of several files (MRXS, DICOM) must be added by their path on the server.",
    ),
    h("div", choose, picker),
    serverPaths
      ? [
          h("h3", "Or a file on the server"),
          h("label", "Path in a folder that was given with --root", path),
          h("label", "µm per pixel, if the file does not state it", mpp),
          wrong,
        ]
      : null,
    h("div.actions", closer("Cancel"), serverPaths ? h("button.button", "Add path") : null),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const size = readMpp(mpp.value);
    if (!path.value.trim() || (mpp.value.trim() && size === null)) {
      wrong.textContent = path.value.trim() ? "µm per pixel must be a number above 0." : "Please enter a path.";
      return;
    }
    try {
      const slide = await api.addPath(path.value.trim(), size);
      dialog.close();
      uploads.dispatchEvent(new CustomEvent("added", { detail: slide }));
    } catch (error) {
      wrong.textContent = error.text ?? error.message;
    }
  });
  const dialog = open("Add slides", form);
  choose.focus();
}
