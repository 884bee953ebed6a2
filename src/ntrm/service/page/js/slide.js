// One slide, whatever its state: waits while it is segmented, says why it failed, and opens it when it is done.

import * as api from "./api.js";
import { retrySlide } from "./dialogs.js";
import { button, h, notice, progressBar, say, setText } from "./dom.js";
import { bind, shortcuts } from "./keyboard.js";
import { poll } from "./poll.js";
import { failure, isMoving, retryWords, showProgress, statusWords } from "./row.js";
import { openView } from "./view.js";

/** Shows slide `id` in `root`; returns how to leave it. */
export function showSlide(root, id, tools) {
  let leaveView = null;
  let left = false;
  let shown = null;
  let refused = ""; // why the last thing that was asked for was not done
  const unbind = bind([
    ...shortcuts("Page", [["Escape", "All slides", () => (location.hash = "#/")]]),
    ...tools.bindings,
  ]);

  function frame(name, ...children) {
    root.replaceChildren(
      h(
        "header.bar",
        tools.back(),
        h("h1.slide-name", name),
        h("span.grow"),
        h("span.purpose", tools.purpose),
        ...tools.buttons(),
      ),
      h("main.state", { id: "main", tabIndex: -1 }, ...children),
    );
  }

  function wait(slide) {
    if (shown !== "wait") {
      frame(
        slide.name,
        ...notice("slides", "Being segmented", h("p.words", { role: "status" })),
        progressBar("Progress", { class: "progress wide" }),
        h("p", "The result appears here by itself."),
        refused ? h("p.reason", refused) : null,
        button("Cancel", () => attempt(() => api.cancel(id))),
      );
      shown = "wait";
    }
    setText(root.querySelector(".words"), statusWords(slide));
    showProgress(root.querySelector(".progress"), slide);
  }

  function stopped(slide) {
    const failed = slide.status === "failed";
    frame(
      slide.name,
      ...notice("warn", failed ? "This slide could not be segmented" : "Cancelled"),
      failed ? h("p.reason", failure(slide)) : null,
      refused ? h("p.reason", refused) : null,
      h(
        "div.actions",
        h("a.button", { href: "#/" }, "All slides"),
        button(retryWords(slide), () => attempt(() => retrySlide(slide)), "primary"),
      ),
    );
    shown = slide.status;
  }

  function broken(error) {
    const missing = [404, 422].includes(error.status); // 422: what stands in the address is no slide's name
    const [name, title, words] = missing
      ? ["search", "There is no such slide", "It may have been deleted."]
      : [
          "gone",
          "The slide cannot be shown",
          error.text ?? "The server does not answer. This page tries again by itself.",
        ];
    const again = missing ? null : button("Try now", () => polling.now(), "primary");
    frame("", ...notice(name, title, words, h("div.actions", h("a.button", { href: "#/" }, "All slides"), again)));
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
      if (isMoving(slide)) wait(slide);
      else if (shown !== slide.status) stopped(slide);
      return isMoving(slide);
    } catch (error) {
      if (!left) broken(error);
      throw error;
    }
  }

  frame("", h("p.muted", "Loading …"));
  const polling = poll(refresh);
  return () => {
    left = true;
    polling.stop();
    unbind();
    leaveView?.();
  };
}
