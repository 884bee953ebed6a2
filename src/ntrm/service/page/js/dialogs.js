// The few questions the page asks, and the sheet of shortcuts.

import { html, render } from "../vendor/preact/preact.min.js";
import * as api from "./api.js";
import { bound } from "./keyboard.js";
import { observe } from "./state.js";
import { Button, Icon } from "./ui.js";
import { uploads } from "./upload.js";

/** Opens a dialog; resolves to the value of the button that closed it, empty for none. */
function open(label, inside) {
  const dialog = document.createElement("dialog");
  dialog.setAttribute("aria-label", label);
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  document.body.append(dialog);
  render(inside, dialog);
  dialog.showModal();
  dialog.querySelector("[data-first]")?.focus();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      resolve(dialog.returnValue);
      render(null, dialog);
      dialog.remove();
    });
  });
}

const close = (event) => event.target.closest("dialog").close();

const Closer = ({ children }) => html`<${Button} onClick=${close}>${children}</${Button}>`;

/** µm per pixel as a number, or null. People write commas, too. */
export function readMpp(text) {
  const value = Number(text.trim().replace(",", "."));
  return text.trim() && Number.isFinite(value) && value > 0 ? value : null;
}

const MppField = ({ label, placeholder, first }) =>
  html`<label>
    ${label}
    <input class="field" name="mpp" inputmode="decimal" placeholder=${placeholder} autocomplete="off"
      data-first=${first} />
  </label>`;

/** The shortcuts of the view that is open. */
export function showHelp() {
  const groups = Map.groupBy(bound(), (binding) => binding.group);
  open(
    "Keyboard shortcuts",
    html`<div class="inside">
      <h2>Keyboard shortcuts</h2>
      ${[...groups].map(
        ([title, bindings]) =>
          html`<h3>${title}</h3>
            <dl class="keys">${bindings.map(shortcut)}</dl>`,
      )}
      <div class="actions"><${Closer}>Close</${Closer}></div>
    </div>`,
  );
  document.querySelector("dialog[open]").scrollTop = 0; // the button below has the focus
}

const shortcut = ({ keys, shown = keys, says }) =>
  html`<div>
    <dt>${shown.map((key) => html`<kbd>${key}</kbd>`)}</dt>
    <dd>${says}</dd>
  </div>`;

/** Asks before something is lost; resolves to true or false. */
export async function confirmLoss(title, text, act) {
  const answer = await open(
    title,
    html`<form class="inside" method="dialog">
      <h2>${title}</h2>
      <p>${text}</p>
      <div class="actions">
        <${Closer}>Keep it</${Closer}>
        <${Button} type="submit" kind="danger" value="yes">${act}</${Button}>
      </div>
    </form>`,
  );
  return answer === "yes";
}

/** Asks for µm per pixel of a file that does not tell it; resolves to a number or null. */
async function askMpp(name) {
  const title = "How large is a pixel?";
  const told = observe({}, { wrong: "" });
  let mpp = null;

  function submit(event) {
    const { mpp: field } = event.target.elements;
    mpp = readMpp(field.value);
    if (mpp !== null) return;
    event.preventDefault();
    told.wrong = "Please enter a number above 0, such as 0.25.";
    field.focus();
  }

  const answer = await open(
    title,
    html`<form class="inside" method="dialog" onSubmit=${submit}>
      <h2>${title}</h2>
      <p>
        “${name}” does not state its µm per pixel, and NTRM never guesses it. See the scanner's documentation: often
        0.25 at 40×, 0.5 at 20×.
      </p>
      <${MppField} label="µm per pixel" placeholder="for example 0.25" first />
      <${Wrong} told=${told} />
      <div class="actions">
        <${Closer}>Not now</${Closer}>
        <${Button} type="submit" kind="primary" value="yes">Segment</${Button}>
      </div>
    </form>`,
  );
  return answer ? mpp : null;
}

const Wrong = ({ told }) => html`<p class="wrong" role="alert">${told.wrong}</p>`;

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
  const told = observe({}, { wrong: "" });
  const choose = (event) => event.target.closest("div").querySelector("input").click();

  function add(event) {
    uploads.add(event.target.files);
    close(event);
  }

  async function submit(event) {
    event.preventDefault();
    const { path, mpp } = event.target.elements;
    const [place, size] = [path.value.trim(), readMpp(mpp.value)];
    if (!place) told.wrong = "Please enter a path.";
    else if (mpp.value.trim() && size === null) told.wrong = "µm per pixel must be a number above 0.";
    else {
      try {
        await api.addPath(place, size);
        close(event);
        uploads.onArrival();
      } catch (error) {
        told.wrong = error.text ?? error.message;
      }
    }
  }

  open(
    "Add slides",
    html`<form class="inside" onSubmit=${submit}>
      <h2>Add slides</h2>
      <p class="muted">
        SVS, NDPI, SCN, TIFF, PNG, JPEG. Files can also be dropped anywhere on the page. Slides of several files (MRXS,
        DICOM) must be added by their path on the server.
      </p>
      <div>
        <button type="button" class="button primary" data-first onClick=${choose}>
          <${Icon} name="upload" />Choose files
        </button>
        <input class="visually-hidden" type="file" multiple tabindex="-1" onChange=${add} />
      </div>
      ${serverPaths && html`<h3>Or a file on the server</h3>
        <label>
          Path in a folder that was given with --root
          <input class="field" name="path" placeholder="/slides/example.svs" autocomplete="off" spellcheck=${false} />
        </label>
        <${MppField} label="µm per pixel, if the file does not state it" placeholder="from the file" />
        <${Wrong} told=${told} />`}
      <div class="actions">
        <${Closer}>Cancel</${Closer}>
        ${serverPaths && html`<${Button} type="submit">Add path</${Button}>`}
      </div>
    </form>`,
  );
}
