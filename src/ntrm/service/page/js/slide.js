// One slide, whatever its state: waits while it is segmented, says why it failed, and opens it when it is done.

import { html, useEffect, useRef } from "../vendor/preact/preact.min.js";
import * as api from "./api.js";
import { Back, BarButtons, PAGE_KEYS, Purpose } from "./bar.js";
import { retrySlide } from "./dialogs.js";
import { bind, shortcuts } from "./keyboard.js";
import { usePolling } from "./poll.js";
import { failure, isMoving, retryWords, SlideProgress, statusWords } from "./row.js";
import { OpenSlide } from "./shell.js";
import { useObserved } from "./state.js";
import { Button, Notice, say } from "./ui.js";
import { openView } from "./view.js";

export function Slide({ id }) {
  const state = useObserved({ slide: null, error: null, refused: "", view: null });
  const left = useRef(false);

  const polling = usePolling(async () => {
    try {
      const slide = await api.slide(id);
      document.title = `${slide.name} · NTRM`;
      if (slide.status === "done") {
        const view = await openView(slide);
        polling.stop();
        if (left.current) view.close();
        else state.view = view;
        return false;
      }
      Object.assign(state, { slide, error: null });
      return isMoving(slide);
    } catch (error) {
      state.error = error;
      throw error;
    }
  });
  useEffect(
    () => () => {
      left.current = true;
    },
    [],
  );
  const isOpen = state.view !== null;
  useEffect(() => {
    const leave = () => {
      location.hash = "#/";
    };
    return isOpen ? undefined : bind([...shortcuts("Page", [["Escape", "All slides", leave]]), ...PAGE_KEYS]);
  }, [isOpen]);

  /** Does something with the slide; where it is refused, that is shown until the next time. */
  async function attempt(call) {
    state.refused = "";
    try {
      await call();
    } catch (error) {
      state.refused = `Not done: ${error.text ?? "the server does not answer."}`;
      say(state.refused);
    }
    polling.now();
  }

  if (isOpen) return html`<${OpenSlide} view=${state.view} />`;
  const name = state.error ? "" : state.slide?.name;
  return html`<header class="bar">
      <${Back} />
      <h1 class="slide-name">${name}</h1>
      <span class="grow" /><${Purpose} /><${BarButtons} />
    </header>
    <main class="state" id="main" tabindex="-1"><${State} ...${{ id, state, attempt }} again=${polling.now} /></main>`;
}

function State({ id, state: { slide, error, refused }, attempt, again }) {
  if (error) return html`<${Broken} error=${error} again=${again} />`;
  if (!slide || slide.status === "done") return html`<p class="muted">Loading …</p>`;
  const reason = refused && html`<p class="reason">${refused}</p>`;
  if (isMoving(slide))
    return html`<${Notice} icon="slides" title="Being segmented">
        <p class="words" role="status">${statusWords(slide)}</p>
      </${Notice}>
      <${SlideProgress} slide=${slide} label="Progress" wide />
      <p>The result appears here by itself.</p>
      ${reason}
      <${Button} onClick=${() => attempt(() => api.cancel(id))}>Cancel</${Button}>`;
  const failed = slide.status === "failed";
  return html`<${Notice} icon="warn" title=${failed ? "This slide could not be segmented" : "Cancelled"} />
    ${failed && html`<p class="reason">${failure(slide)}</p>`} ${reason}
    <div class="actions">
      <a class="button" href="#/">All slides</a>
      <${Button} kind="primary" onClick=${() => attempt(() => retrySlide(slide))}>${retryWords(slide)}</${Button}>
    </div>`;
}

const NO_ANSWER = "The server does not answer. This page tries again by itself.";

function Broken({ error, again }) {
  const missing = [404, 422].includes(error.status); // 422: what stands in the address is no slide's name
  const [icon, title, words] = missing
    ? ["search", "There is no such slide", "It may have been deleted."]
    : ["gone", "The slide cannot be shown", error.text ?? NO_ANSWER];
  return html`<${Notice} icon=${icon} title=${title} words=${words}>
    <div class="actions">
      <a class="button" href="#/">All slides</a>
      ${!missing && html`<${Button} kind="primary" onClick=${again}>Try now</${Button}>`}
    </div>
  </${Notice}>`;
}
