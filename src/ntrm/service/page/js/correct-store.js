// Corrections of a slide as the server holds them: the steps, and the results with them. Only the server's word counts.

import * as api from "./api.js";
import { poll } from "./poll.js";

const AGAIN = 1000; // ms until a server that does not answer is asked again

/** Whether the server, or one in front of it, gave no answer: what was sent may be written or not. */
const isLost = ({ name, status }) => name !== "AbortError" && (!status || status === 502 || status === 504);

/**
 * Fires `change` when the state is another one; its `elsewhere` is true where this page did not cause it. `document` is
 * null until the server has answered, `error` says why it refuses. Fires `lost` when it is not known what was written.
 */
export class CorrectionStore extends EventTarget {
  constructor(id) {
    super();
    this.id = id;
    this.document = null;
    this.error = null;
    this.measured = null;
    this.last = Promise.resolve();
    this.writing = 0;
    this.isStopped = false;
    this.asked = 0; // requests, in order
    this.taken = 0; // the latest one whose answer is shown
  }

  /** Asks now and then, more often while the server is at work; resolves with the first answer. */
  async open() {
    await this.refresh().catch(() => {});
    this.polling = poll(async () => {
      if (!this.writing) await this.refresh();
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
    return this.measured?.revision === this.document?.revision;
  }

  async refresh() {
    const request = ++this.asked;
    let next;
    try {
      next = await api.corrected(this.id);
    } catch (error) {
      if (error.status && error.text !== this.error?.text) {
        this.error = error;
        this.tell(false);
      }
      throw error;
    }
    this.error = null;
    await this.take(request, next, this.document !== null && next.version !== this.version);
  }

  /** A new state, unless a later request was answered before; its results are fetched as soon as they are written. */
  async take(request, next, elsewhere = false) {
    if (request < this.taken) return;
    this.taken = request;
    const same = JSON.stringify(next) === JSON.stringify(this.document);
    this.document = next;
    if (!same) this.tell(elsewhere);
    if (!next.corrected || this.isMeasured || !this.active.length) return;
    const [summary, graph] = await Promise.all([api.correctedSummary(this.id), api.correctedGraph(this.id)]);
    if (next !== this.document) return;
    this.measured = { revision: next.revision, summary, graph };
    this.tell(false);
  }

  tell(elsewhere) {
    this.dispatchEvent(Object.assign(new Event("change"), { elsewhere }));
  }

  /**
   * Calls `send(version)` after all that was sent before; resolves to the new state. Where somebody else was faster, or
   * the answer was lost, the state as it is now is fetched before the refusal is passed on. `isMine(step)` tells whether
   * a step is the one that was sent: where it is there after all, it is written.
   */
  write(send, isMine) {
    const mine = this.last.then(() => this.sent(send, isMine));
    this.last = mine.catch(() => {});
    return mine;
  }

  async sent(send, isMine) {
    const request = ++this.asked;
    const before = this.version;
    this.writing += 1;
    let next;
    try {
      next = await send(before);
    } catch (error) {
      if (error.isConflict) await this.refresh().catch(() => {});
      if (!isLost(error)) throw error;
      this.dispatchEvent(new Event("lost"));
      await this.renewed();
      const step = this.document.steps.find(({ number }) => number === before + 1);
      if (!step || !isMine(step)) throw new api.LostAnswer();
      return this.document;
    } finally {
      this.writing -= 1;
    }
    await this.take(request, next).catch(() => {}); // the step is written; its results are asked for again
    this.polling?.now();
    return next;
  }

  /** The state as it is now, however long the server is away: until then nobody knows what was written. */
  async renewed() {
    while (!this.isStopped) {
      const request = ++this.asked;
      try {
        await this.take(request, await api.corrected(this.id));
        return;
      } catch (error) {
        if (!isLost(error)) break;
        await new Promise((resolve) => setTimeout(resolve, AGAIN));
      }
    }
    throw new api.LostAnswer();
  }

  /** Has the region graph made, where that is possible and not under way. */
  async makeGraph() {
    if (this.document?.graph === "missing") await this.take(++this.asked, await api.makeGraph(this.id));
    this.polling?.now();
  }

  stop() {
    this.isStopped = true;
    this.polling?.stop();
  }
}
