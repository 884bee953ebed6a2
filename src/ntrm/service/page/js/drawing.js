// Lines, labels and outlines over the slide. They follow it through pan, zoom and rotation and keep their width.

const SVG = "http://www.w3.org/2000/svg";
const LINE = 15;

/** An SVG element: `s("path.under", { attributes }, ...children)`; classes, attributes, children may be left out. */
export function s(words, ...rest) {
  const [tag, ...classes] = words.split(".");
  const element = document.createElementNS(SVG, tag);
  element.classList.add(...classes);
  if (rest[0]?.constructor === Object) put(element, rest.shift());
  element.append(...rest.flat());
  return element;
}

export function put(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
}

/** An SVG in `pane`, over its viewer, which draws anew whenever the slide moves. */
export class Overlay {
  constructor(viewer, pane, name) {
    this.viewer = viewer;
    this.svg = s(name, { "aria-hidden": "true" });
    pane.append(this.svg);
    for (const event of ["update-viewport", "resize"]) viewer.osd.addHandler(event, () => this.draw());
  }
}

/**
 * Over a viewer: `lines` are {from, to, label, kind}, `outline` a region's rings, `marks` the windows of an edge as
 * {ring, chosen}, all in pixels of the slide.
 */
export class Drawing extends Overlay {
  constructor(viewer, pane) {
    super(viewer, pane, "svg.drawing");
    Object.assign(this, { lines: [], parts: [], outline: null, marks: [], cross: false });
  }

  set(change) {
    Object.assign(this, change);
    this.build();
    this.draw();
  }

  build() {
    this.parts = this.lines.map((line) => ({
      line,
      halo: s("line.halo"),
      stroke: s("line", { class: `measure ${line.kind}` }),
      ends: [0, 1].map(() => s("circle", { class: `end ${line.kind}`, r: 3 })),
      label: s("text", { class: `measure-label ${line.kind}` }, line.label),
    }));
    const d = this.outline ? pathOf(this.outline) : "";
    this.frame = this.outline ? s("g.region-outline", s("path.under", { d }), s("path.over", { d })) : null;
    this.boxes = this.marks.length ? s("g.window-marks", this.marks.flatMap(drawMark)) : null;
    this.mark = this.cross ? s("path.cross") : null;
    this.svg.replaceChildren(
      ...[
        this.boxes,
        this.frame,
        ...this.parts.flatMap((part) => [part.halo, part.stroke, ...part.ends]),
        ...this.parts.map((part) => part.label),
        this.mark,
      ].filter(Boolean),
    );
  }

  draw() {
    if (!this.svg.isConnected) return;
    const placed = [];
    for (const part of this.parts) this.drawLine(part, placed);
    // Only the matrix changes: an outline may have thousands of points.
    for (const group of [this.frame, this.boxes])
      group?.setAttribute("transform", `matrix(${screenMatrix(this.viewer).join(" ")})`);
    if (this.mark) {
      const [x, y] = this.viewer.middle;
      this.mark.setAttribute("d", `M${x - 9} ${y}h6m6 0h6M${x} ${y - 9}v6m0 6v6`);
    }
  }

  drawLine(part, placed) {
    const [x1, y1] = this.viewer.toScreen(part.line.from);
    const [x2, y2] = this.viewer.toScreen(part.line.to);
    for (const line of [part.halo, part.stroke]) put(line, { x1, y1, x2, y2 });
    put(part.ends[0], { cx: x1, cy: y1 });
    put(part.ends[1], { cx: x2, cy: y2 });
    // The label stands right of the line, or left where there is no room; one that would cover another moves down.
    part.room ||= part.label.getComputedTextLength();
    const right = Math.max(x1, x2) + 8;
    const x = right + part.room < this.viewer.middle[0] * 2 ? right : Math.min(x1, x2) - 8 - part.room;
    let y = (y1 + y2) / 2 + 4;
    const covers = (other) => Math.abs(other.y - y) < LINE && x < other.x + other.room && other.x < x + part.room;
    while (placed.some(covers)) y += LINE + 1;
    placed.push({ x, y, room: part.room });
    put(part.label, { x, y });
  }
}

function drawMark({ ring, chosen }) {
  const d = pathOf([ring]);
  return [s("path.under", { d }), s("path", { class: chosen ? "over chosen" : "over", d })];
}

/** Pixels of the slide → CSS pixels of a viewer, as an SVG matrix. */
export function screenMatrix(viewer) {
  const { width, height } = viewer.geometry;
  const [x0, y0] = viewer.toScreen([0, 0]);
  const [x1, y1] = viewer.toScreen([width, 0]);
  const [x2, y2] = viewer.toScreen([0, height]);
  return [(x1 - x0) / width, (y1 - y0) / width, (x2 - x0) / height, (y2 - y0) / height, x0, y0];
}

/** Closed rings as the text of a path. */
export function pathOf(rings) {
  return rings.map((ring) => `M${ring.map((point) => point.join(" ")).join("L")}Z`).join("");
}
