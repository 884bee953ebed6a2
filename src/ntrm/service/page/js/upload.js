// Files on their way to the server: two at a time, each with its progress. They outlive a change of view.

import { ApiError, noteBack, noteLost, refusal } from "./api.js";
import { button, h, icon, iconButton, setText } from "./dom.js";
import { bytes } from "./format.js";

/** Brings the rows of `sending` up to date with what is on its way. */
export function drawUploads(sending) {
  sending.hidden = !uploads.items.length;
  const known = new Map([...sending.children].map((element) => [Number(element.dataset.key), element]));
  for (const item of uploads.items) {
    let element = known.get(item.key);
    known.delete(item.key);
    if (!element || element.dataset.state !== item.state) {
      const fresh = uploadRow(item);
      if (element) element.replaceWith(fresh);
      else sending.append(fresh);
      element = fresh;
    }
    const part = item.file.size ? item.sent / item.file.size : 0;
    const words = element.querySelector(".words");
    if (item.state === "sending")
      setText(words, `Sending ${Math.floor(Math.min(1, part) * 100)} % of ${bytes(item.file.size)}`);
    const bar = element.querySelector(".progress > span");
    if (bar) bar.style.width = `${Math.min(100, part * 100)}%`;
  }
  known.forEach((element) => element.remove());
}

function uploadRow(item) {
  const failed = item.state === "failed";
  const words = { waiting: "Waiting to be sent", sending: "", checking: "Being checked", failed: "Not added" }[
    item.state
  ];
  return h(
    "li.row",
    { "data-key": item.key, "data-state": item.state, "data-status": failed ? "failed" : "sending" },
    h("div.thumbnail", icon("upload")),
    h("div.who", h("span.name", item.name)),
    h("div.findings", failed ? h("p.reason", item.error.text) : null),
    h(
      "div.status.small",
      h("span", { class: failed ? "words failed" : "words" }, words),
      failed ? null : h("div.progress", h("span")),
    ),
    h(
      "div.row-actions",
      failed ? button("Try again", () => uploads.again(item), "small") : null,
      iconButton("close", failed ? "Forget" : "Stop", () => uploads.drop(item), {
        class: "icon-button quiet",
        "aria-label": `${failed ? "Forget" : "Stop"} ${item.name}`,
      }),
    ),
  );
}

const AT_ONCE = 2;

class Uploads extends EventTarget {
  constructor() {
    super();
    this.items = [];
    this.limit = Infinity;
    this.next = 1;
  }

  /** Queues files. */
  add(files) {
    for (const file of files) {
      const key = this.next++;
      this.items.push({ key, file, name: file.name, sent: 0, state: "waiting", error: null, request: null });
    }
    this.changed();
    this.pump();
  }

  /** Sends a refused one again. */
  again(item) {
    Object.assign(item, { state: "waiting", sent: 0, error: null });
    this.changed();
    this.pump();
  }

  /** Stops and forgets one. */
  drop(item) {
    this.items = this.items.filter((other) => other !== item);
    item.request?.abort();
    this.changed();
    this.pump();
  }

  get busy() {
    return this.items.some((item) => item.state === "sending" || item.state === "waiting" || item.state === "checking");
  }

  changed() {
    this.dispatchEvent(new Event("change"));
  }

  pump() {
    let sending = this.items.filter((item) => item.state === "sending" || item.state === "checking").length;
    for (const item of this.items) {
      if (sending >= AT_ONCE) return;
      if (item.state === "waiting") {
        sending += 1;
        this.send(item);
      }
    }
  }

  send(item) {
    if (item.file.size > this.limit) {
      const [got, expected] = [bytes(item.file.size), `at most ${bytes(this.limit)}`];
      this.fail(item, { what: "the file is too large", got, expected });
      return;
    }
    const query = new URLSearchParams({ name: item.name });
    const request = new XMLHttpRequest();
    Object.assign(item, { request, state: "sending" });
    request.open("POST", `/v1/slides?${query}`);
    request.setRequestHeader("Content-Type", "application/octet-stream");
    request.upload.addEventListener("progress", (event) => {
      item.sent = event.loaded;
      this.changed();
    });
    request.upload.addEventListener("load", () => {
      item.state = "checking";
      this.changed();
    });
    request.addEventListener("load", () => this.answered(item, request));
    request.addEventListener("error", () => {
      noteLost();
      this.fail(item, { what: "the upload was interrupted", hint: "try again when the server answers" });
    });
    request.send(item.file);
    this.changed();
  }

  async answered(item, request) {
    noteBack();
    item.request = null;
    if (request.status >= 200 && request.status < 300) {
      this.drop(item);
      this.dispatchEvent(new CustomEvent("added", { detail: JSON.parse(request.responseText) }));
      return;
    }
    const error = await refusal(request.status, async () => JSON.parse(request.responseText));
    if (error.wantsMpp && error.detail.slide) {
      // The server keeps the file and waits for the number alone.
      this.drop(item);
      this.dispatchEvent(new CustomEvent("unmeasured", { detail: { id: error.detail.slide, name: item.name } }));
      return;
    }
    this.fail(item, error.detail);
  }

  fail(item, detail) {
    if (!this.items.includes(item)) return;
    Object.assign(item, { state: "failed", error: new ApiError(0, detail), request: null });
    this.changed();
    this.pump();
  }
}

export const uploads = new Uploads();

window.addEventListener("beforeunload", (event) => {
  if (uploads.busy) event.preventDefault();
});

/** Files may be dropped anywhere; `act` gets them. A veil tells that they may be let go. */
export function acceptDrops(veil, act) {
  const on = (kind, work) =>
    window.addEventListener(kind, (event) => {
      if (event.dataTransfer?.types.includes("Files")) work(event);
    });
  const show = (event) => {
    event.preventDefault();
    veil.hidden = false;
  };
  on("dragenter", show);
  on("dragover", show);
  on("dragleave", (event) => {
    veil.hidden = !event.relatedTarget; // null: the files have left the window
  });
  on("drop", (event) => {
    event.preventDefault();
    veil.hidden = true;
    if (event.dataTransfer.files.length) act([...event.dataTransfer.files]);
  });
}
