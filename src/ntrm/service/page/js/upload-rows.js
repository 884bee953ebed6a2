// Uploads in the list: one row each while they are sent, or when they were refused.

import { button, h, icon, iconButton, setText } from "./dom.js";
import { bytes } from "./format.js";
import { uploads } from "./upload.js";

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
