// What a person has chosen and how they name it, before it is written: parts or a drawn shape, and what would follow.

import * as api from "./api.js";
import { isInside } from "./correct-drawing.js";
import { rounded } from "./correct-strokes.js";
import { colourOf } from "./palette.js";
import { change, isFromNothing, observe, prefs } from "./state.js";

const PAUSE = 180;
const LEAST_POINTS = { lasso: 3, brush: 1, divide: 2 };
const NEXT = {
  lasso: "Press the key of the right tissue for the parts inside.",
  brush: "Press the key of the right tissue.",
  divide: "Click the side that gets another name.",
};

const UNNAMED = {
  name: null,
  preview: null, // what would follow
  isUnknown: false, // the server was asked what would follow, and could not say
  out: [], // parts that were taken out of what would follow
};
const NOTHING = { parts: [], lasso: null, shape: null, ...UNNAMED };

/** `settings` has whole, only and reach; `failed(error)` is told what the server did not answer. */
export class Choice {
  constructor(id, store, settings, failed) {
    Object.assign(this, { id, store, settings, failed, asking: null });
    observe(this, NOTHING);
  }

  /** Something else is chosen, and perhaps named; nothing at all without it. */
  choose(what = {}) {
    this.stopAsking();
    change(this, { ...NOTHING, ...what });
  }

  stopAsking() {
    clearTimeout(this.timer);
    this.asking?.abort();
    this.asking = null;
  }

  /** The name and what would follow from it are forgotten; what was picked stays. Whether there was a name. */
  drop() {
    const named = Boolean(this.name);
    this.stopAsking();
    change(this, UNNAMED);
    return named;
  }

  get isEmpty() {
    return !this.parts.length && !this.lasso && !this.shape;
  }

  /** Whether what would follow is shown for just what would be written: nothing may follow that nobody has seen. */
  get isSeen() {
    return !this.spreads || this.preview?.of === this.key;
  }

  /** Whether what would follow is not known yet. */
  get isAsking() {
    return Boolean(this.name) && !this.isSeen && !this.isUnknown;
  }

  /** Whether regions are taken whole: as long as nothing can follow, unless all tissue is still one region. */
  get takesWhole() {
    return this.settings.whole || !(this.store.isReady || isFromNothing());
  }

  get spreads() {
    return !this.settings.only && this.store.isReady && !this.shape;
  }

  /** What lies at a place; it remembers whether it is a whole region, since parts may become known meanwhile. */
  async look(place, whole = this.takesWhole) {
    return { ...(await api.part(this.id, place, whole)), whole };
  }

  /** A part instead of what was chosen, or with `more` beside it; one that is there already is given back. */
  pick(part, more = false) {
    const alike = this.parts.filter((other) => other.whole === part.whole);
    const rest = more ? alike.filter((other) => !isInside(other.outline, [part.x, part.y])) : [];
    const there = more && rest.length < alike.length;
    const parts = there ? rest : [...rest, part];
    this.restore(more && parts.length ? { parts, name: this.name, out: this.out } : { parts });
  }

  /** Chosen and named as before. */
  restore({ parts = [], lasso = null, shape = null, name = null, out = [] }) {
    this.choose({ parts, lasso, shape, name, out });
    if (name && this.spreads) this.ask();
  }

  /** A finished line instead of what was chosen; the brush is so many µm or pixels wide. Returns what to do next. */
  takeLine(kind, points, um, pixels) {
    const isEnough = points.length >= LEAST_POINTS[kind];
    if (!isEnough) this.choose();
    else if (kind === "lasso") this.choose({ lasso: rounded(points) });
    else this.choose({ shape: { kind, points, um, pixels, side: null } });
    return isEnough ? NEXT[kind] : "This line is too short: draw it again.";
  }

  /** Gives a name. Where others may follow, asks which. */
  call(name) {
    change(this, { ...UNNAMED, name, out: name === this.name ? this.out : [] });
    if (this.spreads) this.ask();
  }

  /** Asks again soon: a slider moves in many steps. */
  askSoon() {
    clearTimeout(this.timer);
    this.isUnknown = false;
    if (this.name && this.spreads) this.timer = setTimeout(() => this.ask(), PAUSE);
  }

  /** Asks, unless just this is being asked. */
  async ask() {
    clearTimeout(this.timer);
    const of = this.key;
    if (this.asking?.of === of) return;
    this.asking?.abort();
    const mine = Object.assign(new AbortController(), { of });
    this.asking = mine;
    this.isUnknown = false;
    const { out } = this;
    try {
      const preview = await api.previewName(this.id, this.body(this.store.version), mine.signal);
      if (this.asking !== mine) return;
      this.preview = { ...preview, of, out };
    } catch (error) {
      if (this.asking !== mine) return;
      this.preview = null;
      // Whoever learns of another version asks again.
      if (error.isConflict) await this.store.refresh().catch(this.failed);
      else this.failed(error);
    }
    if (this.asking === mine) {
      this.asking = null;
      this.isUnknown = !this.preview;
    }
  }

  /** What a preview is of: everything that decides what would follow. */
  get key() {
    return JSON.stringify({ ...this.body(this.store.version), by: null });
  }

  /** The request that the server understands. */
  body(version) {
    const where = this.lasso ? { lasso: this.lasso } : { points: this.parts.map(({ x, y }) => [x, y]) };
    return {
      version,
      ...where,
      tissue: this.name,
      whole_regions: this.parts[0]?.whole ?? this.takesWhole,
      spread: this.spreads,
      reach: this.settings.reach,
      revise: this.settings.revise ? "all" : "clicked",
      left_out: this.out.map(({ x, y }) => [x, y]),
      by: prefs.initials || null,
    };
  }

  /** Writes what is named; where that is refused, it is chosen as before. Resolves to whether it was written. */
  async write(writer) {
    const { parts, lasso, shape, name, out } = this;
    const step = { action: "name", ...this.body() };
    const shapes = this.shapes()
      .filter(({ kind }) => kind !== "out" && kind !== "line")
      .map((each) => (each.kind === "followed" ? { ...each, kind: "named" } : each));
    this.choose();
    const written = await (shape ? writer.draw(shape, name, shapes) : writer.write(step, shapes));
    if (!written && this.isEmpty) this.restore({ parts, lasso, shape, name, out });
    return written;
  }

  /** Takes the part at a place out of those that follow, or in again; whether there was one. */
  async toggle(place) {
    const rest = this.out.filter((part) => !isInside(part.outline, place));
    if (rest.length < this.out.length) this.out = rest;
    else if (this.follows(place)) {
      const { preview } = this;
      const part = await this.look(place, false);
      if (preview !== this.preview) return true;
      this.out = [...this.out, part];
    } else return false;
    this.ask();
    return true;
  }

  follows(place) {
    return (this.preview?.followed ?? []).some((group) => isInside(group.outline, place));
  }

  /** How many would follow, or were taken out of those that would. */
  get count() {
    return sumOf(this.preview?.followed ?? [], "regions") + this.out.length;
  }

  /**
   * Those of them that can be stepped through, the largest first. The server lists so many and no more: one that comes
   * up for another that was taken out is not among them.
   */
  get listed() {
    const { parts, followed } = this.preview;
    const all = [...parts, ...this.out].sort(
      (one, other) => other.area_mm2 - one.area_mm2 || one.y - other.y || one.x - other.x,
    );
    return parts.length < sumOf(followed, "regions") ? all.slice(0, parts.length) : all;
  }

  /** Why the part with this outline follows; empty if it does not. */
  reason(outline) {
    return this.preview?.parts.find(({ x, y }) => isInside(outline, [x, y]))?.why ?? "";
  }

  /** What is chosen, for the drawing. */
  shapes() {
    const colour = this.name && colourOf(this.name);
    if (this.shape) return [strokeOf(this.shape, colour ?? "#ffffff")];
    const picked = this.lasso ? [this.lasso] : this.parts.flatMap((part) => part.outline);
    const rings = this.preview?.named.outline ?? picked;
    return [
      ...(rings.length ? [{ kind: colour ? "named" : "picked", rings, colour }] : []),
      ...(this.preview?.followed ?? []).map(({ outline, tissue }) => ({
        kind: "followed",
        rings: outline,
        colour: colourOf(tissue),
      })),
      ...this.out.map(({ outline }) => ({ kind: "out", rings: outline })),
    ];
  }
}

/** Of one of the numbers that each has. */
export const sumOf = (items, key) => items.reduce((sum, item) => sum + item[key], 0);

/** A drawn line, for the drawing. */
export function strokeOf({ kind, points, pixels }, colour) {
  return kind === "brush" ? { kind: "brush", points, width: pixels, colour } : { kind: "line", points };
}
