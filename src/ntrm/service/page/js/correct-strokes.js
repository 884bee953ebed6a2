// Lines that a person draws with the pointer, or point by point with the keyboard: lasso, brush, and line to divide.

import { observe } from "./state.js";

const START = 5; // screen pixels until a press becomes a line; below that it is a click
const LEAST = 3; // screen pixels between two points: more would not be seen
const MOST = 4000;
export const WIDTHS = { least: 10, most: 500, first: 80 };

/** Points to a tenth of a pixel: more says nothing, and is much to send. */
export const rounded = (points) => points.map((point) => point.map((value) => Math.round(value * 10) / 10));

/** Collects the points of one line. `done(points)` is called when it is finished. */
export class Stroke {
  constructor(done) {
    observe(this, { points: [] });
    this.done = done;
    this.pressed = null;
    this.dragging = false;
  }

  get isEmpty() {
    return this.points.length === 0;
  }

  /** The pointer goes down; whether a line begins is seen when it moves. */
  press(place) {
    this.pressed = place;
  }

  /** The pointer moves; `pixel` is a screen pixel in pixels of the slide. */
  drag(place, pixel) {
    const far = ([x, y], least) => Math.hypot(place[0] - x, place[1] - y) > least * pixel;
    if (this.pressed && far(this.pressed, START)) {
      this.points = [this.pressed];
      this.pressed = null;
      this.dragging = true;
    }
    if (!this.dragging || !far(this.points.at(-1), LEAST)) return;
    const points = [...this.points, place];
    this.points = points.length > MOST ? points.filter((_, index) => index % 2 === 0) : points;
  }

  /** The pointer goes up. */
  release() {
    if (this.dragging) this.finish();
  }

  /** One point more, from a click or a key. */
  add(place) {
    this.pressed = null;
    this.points = [...this.points, place];
  }

  finish() {
    const { points } = this;
    this.drop();
    if (points.length) this.done(points);
  }

  /** Whether there was something to drop. */
  drop() {
    const there = !this.isEmpty;
    this.points = [];
    this.pressed = null;
    this.dragging = false;
    return there;
  }
}
