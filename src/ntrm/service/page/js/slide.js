// One slide, whatever its state: waits while it is segmented, says why it failed, and opens it when it is done.

import * as api from "./api.js";
import { retrySlide, showHelp } from "./dialogs.js";
import { h, icon, say, setText } from "./dom.js";
import { bind } from "./keyboard.js";
import { poll } from "./poll.js";
import { failure, showProgress } from "./row.js";
import { openView } from "./view.js";

/** Shows slide `id` in `root`; returns how to leave it. */
export function showSlide(root, id, tools) {
  let leaveView = null;
  let left = false;
  let shown = null;
  let refused = ""; // why the last thing that was asked for was not done
  const unbind = bind([
    {
      keys: ["Escape"],
      says: "All slides",
      group: "Page",
      act: () => {
        location.hash = "#/";
      },
    },
    ...tools.bindings,
    { keys: ["?"], says: "This list", group: "Page", act: showHelp },
  ]);

  function frame(name, ...children) {
    root.replaceChildren(
      h(
        "header",
        { class: "bar" },
        h(
          "a",
          { class: "icon-button quiet", href: "#/", title: "All slides", "aria-label": "All slides" },
          icon("back"),
        ),
        h("h1", { class: "slide-name" }, name),
        h("span", { class: "grow" }),
        h("span", { class: "purpose" }, tools.purpose),
        ...tools.buttons(),
      ),
      h("main", { id: "main", class: "state", tabIndex: -1 }, ...children),
    );
  }

  function wait(slide) {
    if (shown !== "wait") {
      frame(
        slide.name,
        icon("slides"),
        h("h2", {}, "Being segmented"),
        h("p", { class: "words", role: "status" }),
        h(
          "div",
          {
            class: "progress wide",
            role: "progressbar",
            "aria-label": "Progress",
            "aria-valuemin": "0",
            "aria-valuemax": "100",
          },
          h("span"),
        ),
        h("p", {}, "The result appears here by itself."),
        refused ? h("p", { class: "reason" }, refused) : null,
        h("button", { type: "button", class: "button", on: { click: () => attempt(() => api.cancel(id)) } }, "Cancel"),
      );
      shown = "wait";
    }
    const percent = Math.floor((slide.progress ?? 0) * 100);
    setText(
      root.querySelector(".words"),
      slide.status === "queued"
        ? `Waiting${slide.queue_position ? `, ${slide.queue_position}. in the queue` : ""}`
        : `${percent} %${slide.stage ? ` · ${slide.stage}` : ""}`,
    );
    showProgress(root.querySelector(".progress"), slide);
  }

  function stopped(slide) {
    const failed = slide.status === "failed";
    frame(
      slide.name,
      icon("warn"),
      h("h2", {}, failed ? "This slide could not be segmented" : "Cancelled"),
      failed ? h("p", { class: "reason" }, failure(slide)) : null,
      refused ? h("p", { class: "reason" }, refused) : null,
      h(
        "div",
        { class: "actions" },
        h("a", { class: "button", href: "#/" }, "All slides"),
        h(
          "button",
          { type: "button", class: "button primary", on: { click: () => attempt(() => retrySlide(slide)) } },
          slide.error?.code === "mpp_missing" ? "Enter µm/px" : "Try again",
        ),
      ),
    );
    shown = slide.status;
  }

  function broken(error) {
    const missing = [404, 422].includes(error.status); // 422: what stands in the address is no slide's name
    frame(
      "",
      icon(missing ? "search" : "gone"),
      h("h2", {}, missing ? "There is no such slide" : "The slide cannot be shown"),
      h(
        "p",
        {},
        missing
          ? "It may have been deleted."
          : (error.text ?? "The server does not answer. This page tries again by itself."),
      ),
      h(
        "div",
        { class: "actions" },
        h("a", { class: "button", href: "#/" }, "All slides"),
        missing
          ? null
          : h("button", { type: "button", class: "button primary", on: { click: () => polling.now() } }, "Try now"),
      ),
    );
    shown = "broken";
  }

  async function attempt(call) {
    refused = "";
    try {
      await call();
    } catch (error) {
      refused = `Not done: ${error.text ?? "the server does not answer."}`;
      say(refused);
    }
    shown = null;
    polling.now();
  }

  async function refresh() {
    try {
      const slide = await api.slide(id);
      if (left) return false;
      document.title = `${slide.name} · NTRM`;
      if (slide.status === "done") {
        polling.stop();
        unbind();
        const leave = await openView(root, slide, tools);
        if (left) leave();
        else leaveView = leave;
        return false;
      }
      if (slide.status === "queued" || slide.status === "running") wait(slide);
      else if (shown !== slide.status) stopped(slide);
      return slide.status === "queued" || slide.status === "running";
    } catch (error) {
      if (!left) broken(error);
      throw error;
    }
  }

  frame("", h("p", { class: "muted" }, "Loading …"));
  const polling = poll(refresh);
  return () => {
    left = true;
    polling.stop();
    unbind();
    leaveView?.();
  };
}
