// What a person is about to correct, drawn over the slide: what is picked, what would follow, strokes.

import { Overlay, pathOf, put, s, screenMatrix } from "./drawing.js";

const HATCH = 9;
const RING = 11;
let drawings = 0;

/**
 * Over a viewer: shapes are `{kind, rings, colour}`, strokes `{kind, points, width, colour}`, and a mark is
 * `{kind: "mark", point}`, all in pixels of the slide.
 *
 * With rings: hover, picked, named (filled), followed (hatched) and out (dashed). With points: line and brush.
 */
class CorrectionDrawing extends Overlay {
  constructor(viewer, pane) {
    super(viewer, pane, "svg.drawing.corrections");
    this.prefix = `hatch-${(drawings += 1)}`;
    this.marks = [];
    this.patterns = new Map();
  }

  show(shapes) {
    this.patterns = new Map();
    this.group = s(
      "g",
      shapes.flatMap((shape) => this.drawn(shape)),
    );
    this.marks = shapes
      .filter((shape) => shape.kind === "mark")
      .map(({ point }) => ({ point, circle: s("circle.mark", { r: RING }) }));
    this.svg.replaceChildren(
      s("defs", [...this.patterns.values()]),
      this.group,
      ...this.marks.map((mark) => mark.circle),
    );
    this.draw();
  }

  drawn({ kind, rings, points, colour, width }) {
    if (kind === "mark") return [];
    if (points) {
      const d = lineOf(points);
      const stroke = { d, class: kind, ...(kind === "brush" ? { "stroke-width": width, stroke: colour } : {}) };
      return kind === "line" ? [s("path.line.under", { d }), s("path", stroke)] : [s("path", stroke)];
    }
    const d = pathOf(rings);
    const fill = kind === "named" ? colour : kind === "followed" ? `url(#${this.hatch(colour)})` : "none";
    return [
      s("path", { d, class: `${kind} under`, fill, "fill-rule": "evenodd" }),
      s("path", { d, class: `${kind} over`, fill: "none", ...(kind === "followed" ? { stroke: colour } : {}) }),
    ];
  }

  /** The id of a pattern of slanted lines in this colour. */
  hatch(colour) {
    const id = `${this.prefix}-${colour.slice(1)}`;
    if (!this.patterns.has(id))
      this.patterns.set(
        id,
        s(
          "pattern",
          { id, width: HATCH, height: HATCH, patternUnits: "userSpaceOnUse" },
          s("rect", { width: HATCH, height: HATCH, fill: "#fff", "fill-opacity": 0.45 }),
          s("rect", { width: HATCH * 0.6, height: HATCH, fill: colour }),
        ),
      );
    return id;
  }

  draw() {
    if (!this.svg.isConnected || !this.group) return;
    const matrix = screenMatrix(this.viewer);
    this.group.setAttribute("transform", `matrix(${matrix.join(" ")})`);
    // The lines keep their width on the screen, but move with the slide.
    const scale = 1 / (Math.hypot(matrix[0], matrix[1]) || 1);
    for (const pattern of this.patterns.values())
      pattern.setAttribute("patternTransform", `scale(${scale}) rotate(45)`);
    for (const { point, circle } of this.marks) {
      const [cx, cy] = this.viewer.toScreen(point);
      put(circle, { cx, cy });
    }
  }
}

/** The same drawing over each viewer; `swapped(version)` is told when one shows the tiles of a version. */
export class CorrectionDrawings {
  constructor(swapped) {
    this.swapped = swapped;
    this.each = new Map();
    this.shapes = [];
  }

  /** Over these viewers and no others: [viewer, its pane], or null where there is none. */
  over(...pairs) {
    const wanted = new Map(pairs.filter(([viewer]) => viewer));
    for (const viewer of this.each.keys()) if (!wanted.has(viewer)) this.each.delete(viewer);
    for (const [viewer, pane] of wanted) if (!this.each.has(viewer)) this.add(viewer, pane);
  }

  add(viewer, pane) {
    const drawing = new CorrectionDrawing(viewer, pane);
    this.each.set(viewer, drawing);
    viewer.osd.addHandler("layer-swapped", ({ layer }) => {
      const version = layer === viewer.overlay && new URLSearchParams(layer.key?.split("?")[1]).get("v");
      if (version) layer.item?.whenFullyLoaded(() => this.swapped(Number(version)));
    });
    drawing.show(this.shapes);
  }

  show(shapes) {
    this.shapes = shapes;
    for (const drawing of this.each.values()) drawing.show(shapes);
  }
}

/** Points as an open path; a single one as a dot. */
function lineOf(points) {
  const [first, ...others] = points;
  return `M${first.join(" ")}L${(others.length ? others : [first]).map((point) => point.join(" ")).join("L")}`;
}

/** Whether a place lies inside closed rings, holes left out (even-odd). */
export function isInside(rings, [x, y]) {
  let inside = false;
  for (const ring of rings) {
    ring.forEach(([x1, y1], index) => {
      const [x2, y2] = ring[(index + 1) % ring.length];
      if (y1 > y !== y2 > y && x < ((x2 - x1) * (y - y1)) / (y2 - y1) + x1) inside = !inside;
    });
  }
  return inside;
}
