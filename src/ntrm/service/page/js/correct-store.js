// Corrections of a slide as the server holds them: the steps, and the results with them. Only the server's word counts.

import * as api from "./api.js";
import { poll } from "./poll.js";
import { change, observe } from "./state.js";

const AGAIN = 1000; // ms until a step that was not answered is sent again

/** A name for a step: the server takes one that is sent twice as one. */
const newKey = () => [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16)).join("-");

/** Whether the server, or one in front of it, gave no answer: what was sent may be written or not. */
const isLost = ({ name, status }) => name !== "AbortError" && (!status || status === 502 || status === 504);

/**
 * `document` is null until the server has answered, `error` says why it refuses, `measured` has a revision's results.
 * `onElsewhere()` is called where somebody else has corrected, `onLost()` when a step is not answered.
 */
export class CorrectionStore {
  constructor(id) {
    Object.assign(this, { id, isStopped: false, onElsewhere() {}, onLost() {} });
    observe(this, { document: null, error: null, measured: null });
    this.last = Promise.resolve(); // the steps that were sent
    this.sends = 0; // what was asked before a step was sent is old when it is answered
  }

  /** Asks now and then, more often while the server is at work; resolves with the first answer. */
  async open() {
    await this.refresh().catch(() => {});
    if (this.isStopped) return;
    this.polling = poll(async () => {
      await this.last;
      await this.refresh();
      return this.isMoving;
    });
  }

  get version() {
    return this.document?.version ?? 0;
  }

  /** Steps that count, the latest last. */
  get active() {
    return (this.document?.steps ?? []).filter((step) => step.active && !step.of);
  }

  get isReady() {
    return this.document?.graph === "ready";
  }

  get isMoving() {
    const { graph, corrected, corrected_reason: failed } = this.document ?? {};
    return graph === "waiting" || graph === "making" || (this.active.length > 0 && !corrected && !failed);
  }

  /** Whether the results with the corrections are those of the present steps: another log may have as many. */
  get isMeasured() {
    return this.measured !== null && this.measured.revision === this.document?.revision;
  }

  async refresh() {
    const { sends } = this;
    let next;
    try {
      next = await api.corrected(this.id);
    } catch (error) {
      if (error.status && error.text !== this.error?.text) this.error = error;
      throw error;
    }
    if (sends !== this.sends) return;
    const isNews = this.document !== null && next.version !== this.version;
    await this.take(next, isNews);
  }

  /** A new state; its results are fetched as soon as they are written. */
  async take(next, isNews = false) {
    if (JSON.stringify(next) !== JSON.stringify(this.document)) change(this, { document: next, error: null });
    else this.error = null;
    const { document } = this;
    if (isNews) this.onElsewhere();
    if (!next.corrected || this.isMeasured || !this.active.length) return;
    const [summary, graph] = await Promise.all([api.correctedSummary(this.id), api.correctedGraph(this.id)]);
    if (document === this.document) this.measured = { revision: next.revision, summary, graph };
  }

  /**
   * Sends a step after all that was sent before, until it is answered; resolves to the new state. Where somebody else
   * was faster, the state as it is now is fetched before the refusal is passed on.
   */
  write(step) {
    const mine = this.last.then(() => this.sent(step));
    this.last = mine.catch(() => {});
    return mine;
  }

  async sent(step) {
    this.sends += 1;
    let next;
    try {
      next = await this.answer({ ...step, version: this.version, key: newKey() });
    } catch (error) {
      if (error.isConflict) await this.refresh().catch(() => {});
      throw error;
    }
    this.sends += 1;
    await this.take(next).catch(() => {}); // the step is written; its results are asked for again
    this.polling?.now();
    return next;
  }

  async answer(ask) {
    for (let tries = 0; ; tries += 1) {
      try {
        return await api.correct(this.id, ask);
      } catch (error) {
        if (!isLost(error) || this.isStopped) throw error;
        if (!tries) this.onLost();
        await new Promise((resolve) => setTimeout(resolve, AGAIN));
      }
    }
  }

  /** Has the region graph made, where that is possible and not under way. */
  async makeGraph() {
    if (this.document?.graph === "missing") await this.take(await api.makeGraph(this.id));
    this.polling?.now();
  }

  stop() {
    this.isStopped = true;
    this.polling?.stop();
  }
}
