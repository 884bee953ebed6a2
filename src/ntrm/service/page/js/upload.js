// Files on their way to the server: two at a time, each with its progress. They outlive a change of view.

import { html, useEffect } from "../vendor/preact/preact.min.js";
import { ApiError, refusal } from "./api.js";
import { bytes } from "./format.js";
import { change, observe, page, useObserved } from "./state.js";
import { Button, Icon, IconButton } from "./ui.js";

const AT_ONCE = 2;
const MOVING = ["sending", "checking"];

class Uploads {
  constructor() {
    observe(this, { items: [] });
    this.onArrival = () => {}; // there is something new for the list of slides
    this.onUnmeasured = () => {}; // a slide waits for its µm per pixel
    this.next = 1;
  }

  /** Queues files. */
  add(files) {
    const fields = { sent: 0, state: "waiting", error: null };
    const added = [...files].map((file) => observe({ key: this.next++, file, name: file.name, request: null }, fields));
    this.items = [...this.items, ...added];
    this.pump();
  }

  /** Sends a refused one again. */
  again(item) {
    change(item, { state: "waiting", sent: 0, error: null });
    this.pump();
  }

  /** Stops and forgets one. */
  drop(item) {
    this.items = this.items.filter((other) => other !== item);
    item.request?.abort();
    this.pump();
  }

  get isBusy() {
    return this.items.some((item) => item.state !== "failed");
  }

  pump() {
    const isFull = () => this.items.filter((item) => MOVING.includes(item.state)).length >= AT_ONCE;
    for (const item of this.items) if (item.state === "waiting" && !isFull()) this.send(item);
  }

  send(item) {
    const limit = page.about.limits?.upload_bytes ?? Infinity;
    if (item.file.size > limit) {
      const [got, expected] = [bytes(item.file.size), `at most ${bytes(limit)}`];
      this.fail(item, { what: "the file is too large", got, expected });
      return;
    }
    const request = new XMLHttpRequest();
    change(item, { request, state: "sending" });
    request.open("POST", `/v1/slides?${new URLSearchParams({ name: item.name })}`);
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.upload.addEventListener("progress", ({ loaded }) => change(item, { sent: loaded }));
    request.upload.addEventListener("load", () => change(item, { state: "checking" }));
    request.addEventListener("load", () => this.answered(item, request));
    request.addEventListener("error", () => {
      page.isLost = true;
      this.fail(item, { what: "the upload was interrupted", hint: "try again when the server answers" });
    });
    request.send(item.file);
  }

  async answered(item, request) {
    page.isLost = false;
    item.request = null;
    if (request.status >= 200 && request.status < 300) {
      this.drop(item);
      this.onArrival();
      return;
    }
    const error = await refusal(request.status, async () => JSON.parse(request.responseText));
    if (error.wantsMpp && error.detail.slide) {
      // The server keeps the file and waits for the number alone.
      this.drop(item);
      this.onUnmeasured({ id: error.detail.slide, name: item.name });
    } else this.fail(item, error.detail);
  }

  fail(item, detail) {
    if (!this.items.includes(item)) return;
    change(item, { state: "failed", error: new ApiError(0, detail), request: null });
    this.pump();
  }
}

export const uploads = new Uploads();

window.addEventListener("beforeunload", (event) => {
  if (uploads.isBusy) event.preventDefault();
});

/** The rows of what is on its way. */
export const Sending = () =>
  html`<ul class="rows sending" aria-label="Uploads" hidden=${!uploads.items.length}>
    ${uploads.items.map((item) => html`<${UploadRow} key=${item.key} item=${item} />`)}
  </ul>`;

function UploadRow({ item }) {
  const { name, file, state, sent, error } = item;
  const failed = state === "failed";
  const percent = Math.min(100, file.size ? (sent / file.size) * 100 : 0);
  const words = {
    waiting: "Waiting to be sent",
    sending: `Sending ${Math.floor(percent)} % of ${bytes(file.size)}`,
    checking: "Being checked",
    failed: "Not added",
  };
  const stop = failed ? "Forget" : "Stop";
  return html`<li class="row" data-key=${item.key} data-state=${state} data-status=${failed ? "failed" : "sending"}>
    <div class="thumbnail"><${Icon} name="upload" /></div>
    <div class="who"><span class="name">${name}</span></div>
    <div class="findings">${failed && html`<p class="reason">${error.text}</p>`}</div>
    <div class="status small">
      <span class=${failed ? "words failed" : "words"}>${words[state]}</span>
      ${!failed && html`<div class="progress"><span style=${{ width: `${percent}%` }} /></div>`}
    </div>
    <div class="row-actions">
      ${failed && html`<${Button} kind="small" onClick=${() => uploads.again(item)}>Try again</${Button}>`}
      <${IconButton} name="close" label=${stop} class="icon-button quiet" aria-label=${`${stop} ${name}`}
        onClick=${() => uploads.drop(item)} />
    </div>
  </li>`;
}

/** Files may be dropped anywhere: a veil tells that they may be let go, and the list shows them. */
export function DropVeil() {
  const veil = useObserved({ isShown: false });
  useEffect(() => {
    const acts = {
      dragenter: hold,
      dragover: hold,
      dragleave: (event) => {
        veil.isShown = Boolean(event.relatedTarget); // null: the files have left the window
      },
      drop(event) {
        event.preventDefault();
        veil.isShown = false;
        if (!event.dataTransfer.files.length) return;
        uploads.add(event.dataTransfer.files);
        if (location.hash.startsWith("#/slide/")) location.hash = "#/";
      },
    };
    function hold(event) {
      event.preventDefault();
      veil.isShown = true;
    }
    const listener = (event) => event.dataTransfer?.types.includes("Files") && acts[event.type](event);
    for (const kind of Object.keys(acts)) window.addEventListener(kind, listener);
    return () => Object.keys(acts).forEach((kind) => window.removeEventListener(kind, listener));
  }, []);
  return html`<div class="drop-veil" hidden=${!veil.isShown}><div><${Icon} name="upload" />Drop to add</div></div>`;
}
