// Sends corrections. What was sent is drawn at once, until the tiles show it, or taken away again if it was refused.

import * as api from "./api.js";
import { rounded } from "./correct-strokes.js";
import { lastStep } from "./correct-words.js";
import { initialsGiven } from "./prefs.js";

/** `tell(text)` says what happened, `refused(error)` what did not; `changed()` draws. */
export class CorrectionWriter {
  constructor(id, store, { tell, refused, changed }) {
    Object.assign(this, { id, store, tell, refused, changed });
    this.ghosts = [];
    this.shown = 0;
    this.isUndoing = false;
  }

  /** As `CorrectionStore.write`; resolves to whether it was written. `shapes` are drawn meanwhile. */
  async write(send, isMine, shapes = []) {
    const mine = shapes.map((shape) => ({ ...shape, at: Infinity }));
    this.ghosts.push(...mine);
    this.changed();
    try {
      const { version } = await this.store.write(send, isMine);
      for (const ghost of mine) ghost.at = version;
      this.sweep(this.shown);
      return true;
    } catch (error) {
      this.ghosts = this.ghosts.filter((ghost) => !mine.includes(ghost));
      this.refused(error);
      return false;
    }
  }

  /** The tiles show this version: nothing of it need be drawn over them. */
  sweep(version) {
    this.shown = version;
    const rest = this.ghosts.filter((ghost) => ghost.at > version);
    if (rest.length === this.ghosts.length) return;
    this.ghosts = rest;
    this.changed();
  }

  /** Whether a layer shows corrections at all; where none does, nothing is drawn for it either. */
  follow(isShown) {
    if (!isShown) this.sweep(Infinity);
    else if (this.shown === Infinity) this.shown = 0;
  }

  /** A name for parts, as `Choice.body` has it; `mm2` is what it comes to, where that is known. */
  name(body, mm2, shapes) {
    const isMine = (step) =>
      isSame(step, { action: "name", tissue: body.tissue, spread: body.spread, by: body.by }) &&
      (!body.spread || isNear(step.reach, body.reach)) &&
      (mm2 === null || isNear(step.area_mm2, mm2));
    return this.write((version) => api.giveName(this.id, { ...body, version }), isMine, shapes);
  }

  /** A brush stroke or a dividing line. */
  draw({ kind, points, um, side }, tissue, shapes) {
    const shape = { kind, points: rounded(points), tissue, by: initialsGiven() };
    const more = kind === "brush" ? { width_um: um } : { side: rounded([side])[0] };
    const isMine = (step) => isSame(step, { action: "draw", tissue, by: shape.by });
    return this.write((version) => api.draw(this.id, { ...shape, ...more, version }), isMine, shapes);
  }

  step(action) {
    const mine = { action, by: initialsGiven() };
    const send = (version) => {
      mine.of = this.store.document?.[action]?.number;
      return api.takeBack(this.id, action, { version, by: mine.by });
    };
    return this.write(send, (step) => isSame(step, mine));
  }

  async undo() {
    await this.store.last; // a step that is on its way can be undone
    if (!this.store.document?.undo) this.tell("There is nothing to undo.");
    else if (await this.step("undo")) this.tell(`${lastStep(this.store)}.`);
  }

  async redo() {
    await this.store.last;
    if (!this.store.document?.redo) this.tell("There is nothing to redo.");
    else if (await this.step("redo")) this.tell(`${lastStep(this.store)}.`);
  }

  /** Takes back a step and all that came after it; a second click on the way takes back nothing more. */
  async undoTo(number) {
    if (this.isUndoing) return;
    this.isUndoing = true;
    try {
      await this.store.last; // what is on its way comes after it, too
      while (this.store.document?.undo?.number >= number) if (!(await this.step("undo"))) return;
      this.tell(`Step ${number} and what came after it are undone.`);
    } finally {
      this.isUndoing = false;
    }
  }
}

/** Whether a step of the server has all that this page sent. */
const isSame = (step, sent) =>
  step.origin === "page" && Object.entries(sent).every(([key, value]) => (step[key] ?? null) === (value ?? null));

const isNear = (one, other) => Math.abs(one - other) <= 1e-6 * Math.abs(other);
