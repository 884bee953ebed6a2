// Sends corrections. What was sent is drawn at once, until the tiles show it, or taken away again if it was refused.

import { rounded } from "./correct-strokes.js";
import { lastStep } from "./correct-words.js";
import { observe, prefs } from "./state.js";

/** `tell(text)` says what happened, `refused(error)` what did not; `ghosts` are drawn meanwhile. */
export class CorrectionWriter {
  constructor(store, { tell, refused }) {
    Object.assign(this, { store, tell, refused, shown: 0, isUndoing: false });
    observe(this, { ghosts: [] });
  }

  /** As `CorrectionStore.write`; resolves to whether it was written. `shapes` are drawn meanwhile. */
  async write(step, shapes = []) {
    const mine = shapes.map((shape) => ({ ...shape, at: Infinity }));
    this.ghosts = [...this.ghosts, ...mine];
    try {
      const { version } = await this.store.write(step);
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
    if (this.ghosts.some((ghost) => ghost.at <= version))
      this.ghosts = this.ghosts.filter((ghost) => ghost.at > version);
  }

  /** Whether a layer shows corrections at all; where none does, nothing is drawn for it either. */
  follow(isShown) {
    if (!isShown) this.sweep(Infinity);
    else if (this.shown === Infinity) this.shown = 0;
  }

  /** A brush stroke or a dividing line. */
  draw({ kind, points, um, side }, tissue, shapes) {
    const more = kind === "brush" ? { width_um: um } : { side: rounded([side])[0] };
    const step = { action: "draw", kind, points: rounded(points), tissue, by: prefs.initials || null, ...more };
    return this.write(step, shapes);
  }

  undo() {
    return this.step("undo");
  }

  redo() {
    return this.step("redo");
  }

  /** Undoes or redoes the next one, also one that is on its way; whether there was one. */
  async step(action) {
    await this.store.last;
    if (!this.store.document?.[action]) this.tell(`There is nothing to ${action}.`);
    else if (await this.write({ action, by: prefs.initials || null })) {
      this.tell(`${lastStep(this.store)}.`);
      return true;
    }
    return false;
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
