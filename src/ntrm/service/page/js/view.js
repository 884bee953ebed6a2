// A finished slide: stage, panels and toolbar, and the one state they all show.

import * as api from "./api.js";
import { showHelp } from "./dialogs.js";
import { say } from "./dom.js";
import { MEAN } from "./edge-windows.js";
import { regionNote, unlikeBanner, unlikeWords } from "./familiarity.js";
import { save, svgBlob, viewBlob } from "./figure.js";
import { boxToSlide, geometryOf } from "./geometry.js";
import { bind } from "./keyboard.js";
import { makeLayers } from "./layer-panel.js";
import { makeLegend } from "./legend.js";
import { makeMeasures, measureLines, uprightOf } from "./measures.js";
import { tissueNamed } from "./palette.js";
import { paletteName, prefs } from "./prefs.js";
import { Hover, makeRegion, readingLine } from "./region.js";
import { makeRelations } from "./relations-panel.js";
import { makeShell } from "./shell.js";
import { Stage } from "./stage.js";
import { viewBindings } from "./view-keys.js";

const DIMMED = 0.35;

/** Shows a finished slide; resolves to how to leave it. */
export async function openView(root, slide, tools) {
  const { id } = slide;
  const [summary, graph, tiles] = await Promise.all([api.summary(id), api.graph(id), api.tiles(id)]);
  const geometry = geometryOf(tiles, summary);
  const view = {
    layer: "tissue",
    opacity: 0.5,
    hidden: new Set(),
    compare: "off",
    piece: null,
    up: false,
    lines: true,
    highlight: null,
    relation: "boundary",
    attentionLayer: MEAN,
    window: null,
  };
  const pieces = summary.pieces.map((piece) => piece.number);
  const refresh = () => apply();

  const stage = new Stage(id, geometry, { read, hover: (place) => hover.move(place), up: turn });
  const hover = new Hover(id, (answer) => stage.show(readingLine(answer)));
  const layers = makeLayers(geometry.layers, view, refresh);
  const legend = makeLegend(view, () => {
    view.highlight = null;
    apply();
  });
  const relations = makeRelations(graph, view, refresh, (window) => {
    view.window = window;
    apply();
    stage.fitBox(boxToSlide(geometry, window), 0.6);
  });
  const measures = makeMeasures(summary, geometry, view, refresh, (line) => {
    view.lines = true;
    apply();
    stage.fitBox(lineBox(line), 1.5);
  });
  const outlined = (found) => stage.drawing.set({ outline: found ? outlineOf(found) : null });
  const region = makeRegion(id, outlined, (found) => regionNote(summary, found));
  const shell = makeShell(slide, tools, {
    stage: stage.element,
    tabs: [
      ["tissues", "Tissues", [layers.element, legend.element]],
      ["relations", "Relations", [relations.element]],
      ["measures", "Measures", [measures.element]],
      ["region", "Region", [region.element]],
    ],
    pieces,
    step,
    downloads: { picture: savePicture, graph: saveGraph },
    model: summary.model,
    banner: unlikeBanner(slide, summary),
  });
  root.replaceChildren(...shell.elements);
  await stage.open();

  function query() {
    const parts = new URLSearchParams();
    const index = (name) => tissueNamed(name).index;
    if (paletteName() === "safe") parts.set("palette", "safe");
    if (view.highlight?.kind === "tissue") parts.set("only", index(view.highlight.name));
    else if (view.highlight)
      parts.set(
        "only",
        [view.highlight.a, view.highlight.b]
          .map(index)
          .sort((a, b) => a - b)
          .join(","),
      );
    else if (view.hidden.size)
      parts.set(
        "hide",
        [...view.hidden]
          .map(index)
          .sort((a, b) => a - b)
          .join(","),
      );
    return parts.toString().replaceAll("%2C", ",");
  }

  function paint(viewer, layer) {
    const tissue = layer === "tissue" || layer === "coarse";
    const interfaceOn = view.highlight?.kind === "interface";
    viewer.overlay.setOpacity(interfaceOn && tissue ? Math.min(view.opacity, DIMMED) : view.opacity);
    const safe = layer === "improvement" && paletteName() === "safe" ? "palette=safe" : "";
    viewer.showOverlay(layer === "none" ? null : layer, tissue ? query() : safe);
    viewer.showInterface(
      interfaceOn && geometry.layers.includes("interface") ? [view.highlight.a, view.highlight.b] : null,
    );
  }

  async function apply() {
    layers.update();
    legend.update(amounts(summary, view.piece));
    relations.update();
    measures.update();
    shell.update(view);
    const marks = relations
      .windows()
      .map((window) => ({ ring: ringOf(boxToSlide(geometry, window)), chosen: sameBox(window, view.window) }))
      .sort((one, other) => one.chosen - other.chosen); // the chosen one lies above the others
    stage.drawing.set({ marks, lines: view.lines ? measureLines(summary, geometry, view.piece) : [] });
    const second = await stage.compare(view.compare);
    paint(stage.viewer, second ? "coarse" : view.layer);
    if (second) paint(second, "tissue");
  }

  function read(place) {
    shell.select("region");
    region.show(place);
  }

  function step(by) {
    const places = [null, ...pieces];
    view.piece = places[(places.indexOf(view.piece) + by + places.length) % places.length];
    if (view.up) stage.rotateTo(uprightOf(summary, view.piece) ?? 0);
    const piece = summary.pieces.find((entry) => entry.number === view.piece);
    if (piece) stage.fitBox(boxToSlide(geometry, piece.mask_box_px));
    else stage.fit();
    say(view.piece === null ? "All pieces" : `Piece ${view.piece} of ${pieces.length}`);
    apply();
  }

  function turn() {
    const degrees = uprightOf(summary, view.piece);
    if (degrees === null) {
      say("The direction of the skin surface is not known.");
      shell.select("measures");
      return;
    }
    view.up = !view.up;
    stage.rotateTo(view.up ? degrees : 0);
    const piece =
      summary.pieces.find((entry) => entry.number === view.piece) ?? (pieces.length === 1 ? summary.pieces[0] : null);
    if (piece) stage.fitBox(boxToSlide(geometry, piece.mask_box_px));
    else stage.fit();
  }

  async function savePicture() {
    const here = stage.figure();
    const shown = legend.names.filter(
      (name) => !view.hidden.has(name) && (amounts(summary, view.piece).areas[name] ?? 0) > 0,
    );
    const { model, program, purpose } = summary;
    const names = [slide.slide_id, `${model.name} ${model.version}`, `NTRM ${program.version}`];
    const footer = [...names, unlikeWords(slide), purpose].filter(Boolean).join(" · ");
    save(
      await viewBlob({ ...here, legend: view.layer === "tissue" || view.layer === "coarse" ? shown : [], footer }),
      `${slide.slide_id}-view.png`,
    );
  }

  function saveGraph() {
    save(svgBlob(relations.figure()), `${slide.slide_id}-graph.svg`);
  }

  const unbind = bind([
    ...viewBindings({ view, stage, layers, legend, region, shell, apply, step, turn, read }),
    ...tools.bindings,
    { keys: ["?"], says: "This sheet", group: "Page", act: showHelp },
  ]);
  const redraw = () => {
    apply();
  };
  prefs.addEventListener("palette", redraw);
  prefs.addEventListener("theme", redraw);
  await apply();
  return () => {
    hover.stop();
    unbind();
    prefs.removeEventListener("palette", redraw);
    prefs.removeEventListener("theme", redraw);
    stage.destroy();
  };
}

/** Areas and shares of one piece or of the whole slide. */
function amounts(summary, piece) {
  const of = piece === null ? summary : summary.pieces.find((entry) => entry.number === piece);
  return { areas: of.areas_mm2, shares: of.tissue_fractions };
}

function lineBox({ from, to }) {
  const [left, top] = [Math.min(from[0], to[0]), Math.min(from[1], to[1])];
  return { left, top, width: Math.abs(from[0] - to[0]), height: Math.abs(from[1] - to[1]) };
}

/** A region's rings; its bounds where they could not be read. */
function outlineOf({ outline, left_px: left, top_px: top, width_px: width, height_px: height }) {
  return outline ?? [ringOf({ left, top, width, height })];
}

const sameBox = (one, other) => Boolean(other) && one.top === other.top && one.left === other.left;

/** The corners of a box, one after the other. */
function ringOf({ left, top, width, height }) {
  const [right, bottom] = [left + width, top + height];
  return [
    [left, top],
    [right, top],
    [right, bottom],
    [left, bottom],
  ];
}
