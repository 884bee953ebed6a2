// Going over a slide by keyboard: from region to region, to what touches, and from one part that follows to the next.

import * as api from "./api.js";
import { isInside } from "./correct-drawing.js";
import { capital, partText } from "./correct-words.js";
import { area } from "./format.js";

const FARTHEST = 20000; // steps of one pixel of the mask until the other side of a region is given up

/** The regions in the order in which a person looks at them, as the server has it, and where in it this page is. */
class Review {
  constructor(id, store) {
    Object.assign(this, { id, store, regions: [], order: null, version: null, at: -1 });
  }

  /** The list again where it may be another one: somebody has corrected, or the parts have become known. */
  async load() {
    if (this.version === this.store.version && (this.order === "likely errors" || !this.store.isReady)) return;
    const { version, order, regions } = await api.regionsToReview(this.id);
    if (order !== this.order) this.at = -1;
    Object.assign(this, { version, order, regions });
  }

  /** The next region that no person has named, or the one before, named or not; null where there is none. */
  async step(by) {
    await this.load();
    const count = this.regions.length;
    for (let away = 1; away <= count; away += 1) {
      const from = this.at < 0 && by < 0 ? 0 : this.at;
      const index = (((from + by * away) % count) + count) % count;
      if (by > 0 && this.regions[index].by_hand) continue;
      this.at = index;
      return { ...this.regions[index], number: index + 1, count };
    }
    return null;
  }
}

/** `step(by, more)` and `beside(x, y)` resolve to `{ place, box, outline, says }`, or to `{ says }` where nothing is there. */
export function makeSteps({ id, stage, geometry, store, choice }) {
  const review = new Review(id, store);
  let follower = null;

  /** What is picked now, and around it the region that it belongs to. */
  async function picked(place, more, says) {
    const whole = choice.look(place, true);
    const [part, region] = await Promise.all([choice.takesWhole ? whole : choice.look(place), whole]);
    choice.pick(part, more);
    const where = part.whole ? place : insideOf(part);
    return { place: where, box: boxOf(region.outline), outline: region.outline, says: says(part, region) };
  }

  async function toRegion(by, more) {
    const next = await review.step(by);
    if (!next) return { says: review.regions.length ? "A person has named every region." : "There are no regions." };
    const { x, y, number, count } = next;
    return picked([x, y], more, (part, region) => {
      const picks = part.whole ? "" : " The part in its middle is picked.";
      return `Region ${number} of ${count}: ${partText(region)}.${picks}`;
    });
  }

  /** From one part that would follow to the next, the largest first; those that were taken out are among them. */
  function toFollower(by) {
    const all = choice.listed;
    if (!all.length) return { says: "Nothing follows." };
    const at = all.findIndex(({ x, y }) => follower && x === follower[0] && y === follower[1]);
    const index = (Math.max(at + by, at < 0 ? 0 : -1) + all.length) % all.length;
    const { x, y, network_tissue: tissue, area_mm2: mm2, why } = all[index];
    follower = [x, y];
    const count = choice.count > all.length ? `the ${all.length} largest of ${choice.count}` : all.length;
    const what = `Part ${index + 1} of ${count} that would follow: ${tissue}, ${area(mm2)}`;
    return { place: follower, box: around(follower), outline: [], says: `${what}. ${capital(why ?? "excluded")}.` };
  }

  /** What touches the last thing that was picked, in a direction of the screen. */
  async function beside(x, y) {
    const last = choice.parts.at(-1);
    if (!last) return toRegion(1, false);
    const [from, to] = [
      [0, 0],
      [x, y],
    ].map((pixel) => stage.viewer.toSlide(pixel));
    const length = Math.hypot(to[0] - from[0], to[1] - from[1]);
    const step = [0, 1].map((axis) => ((to[axis] - from[axis]) / length) * geometry.toSlide[axis]);
    let place = insideOf(last);
    for (let count = 0; count < FARTHEST && isInside(last.outline, place); count += 1)
      place = [place[0] + step[0], place[1] + step[1]];
    const isOff = place.some((value, axis) => value < 0 || value >= [geometry.width, geometry.height][axis]);
    if (isOff) return { says: "The slide ends here." };
    return picked(place, false, (part) => `Beside it: ${partText(part)}.`);
  }

  const around = ([x, y]) => {
    const [width, height] = geometry.toSlide.map((side) => side * 16);
    return { left: x, top: y, width, height };
  };

  return { step: async (by, more = false) => (choice.preview ? toFollower(by) : toRegion(by, more)), beside };
}

/** A place inside a part: its middle, or where that lies outside, the one that the server names. */
function insideOf({ outline, x, y }) {
  const { left, top, width, height } = boxOf(outline);
  const middle = [left + width / 2, top + height / 2];
  return isInside(outline, middle) ? middle : [x, y];
}

function boxOf(outline) {
  const [xs, ys] = [0, 1].map((axis) => outline.flatMap((ring) => ring.map((point) => point[axis])));
  const [left, top] = [least(xs), least(ys)];
  return { left, top, width: -least(xs.map((x) => -x)) - left, height: -least(ys.map((y) => -y)) - top };
}

/** A long outline is too much for the arguments of Math.min. */
const least = (values) => values.reduce((one, other) => Math.min(one, other), Infinity);
