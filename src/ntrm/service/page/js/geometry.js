// Where things lie: tiles, mask pixels, pixels of the slide, and the viewer's own unit (the slide's width is 1).

const FINER = 4;

/** What `/tiles` and the summary say about one slide, put together. */
export function geometryOf(tiles, summary) {
  const { width, height } = tiles;
  const { max_level: top, tile_size: size } = tiles;
  const [sx, sy] = tiles.mask_to_image ?? summary.grid.to_level0;
  // Below this level the whole slide is one tile; above `finest` a mask has nothing more to show.
  const first = Math.max(0, Math.ceil(Math.log2((size * 2 ** top) / Math.max(width, height)) + 1e-9) - 1);
  const finest = Math.min(top, Math.max(first, top - Math.floor(Math.log2(Math.max(1, Math.min(sx, sy) / FINER)))));
  return {
    width,
    height,
    size,
    top,
    first: Math.min(first, top),
    finest,
    mpp: tiles.mpp ?? summary.grid.slide_mpp[0],
    toSlide: [sx, sy],
    layers: tiles.layers,
    revision: tiles.revision,
  };
}

/**
 * Options of a tiled image up to `level`. A level's width is rounded up to whole pixels, so that it reaches a little
 * further than the slide does: its width in the viewer's unit says by how much.
 */
export function tiledImage(geometry, level, address) {
  const scale = 2 ** (geometry.top - level);
  const width = Math.ceil(geometry.width / scale);
  const height = Math.ceil(geometry.height / scale);
  return {
    x: 0,
    y: 0,
    width: (width * scale) / geometry.width,
    tileSource: {
      width,
      height,
      tileWidth: geometry.size,
      tileHeight: geometry.size,
      tileOverlap: 0,
      minLevel: Math.min(geometry.first, level),
      maxLevel: level,
      getTileUrl: address,
    },
  };
}

/** A point (row, column) of the mask in pixels of the slide. Lines run between the centres of pixels. */
export function maskToSlide(geometry, [row, column]) {
  return [(column + 0.5) * geometry.toSlide[0], (row + 0.5) * geometry.toSlide[1]];
}

/** A box of the mask in pixels of the slide. */
export function boxToSlide(geometry, { left, top, width, height }) {
  const [sx, sy] = geometry.toSlide;
  return { left: left * sx, top: top * sy, width: width * sx, height: height * sy };
}

/** The corners of a box, one after the other. */
export function ringOf({ left, top, width, height }) {
  const [right, bottom] = [left + width, top + height];
  return [
    [left, top],
    [right, top],
    [right, bottom],
    [left, bottom],
  ];
}

/** A round length that takes at most `longest` screen pixels, and how many it takes. */
export function scaleBar(umPerPixel, longest) {
  const most = umPerPixel * longest;
  const power = 10 ** Math.floor(Math.log10(most));
  const um = [5, 2, 1].map((step) => step * power).find((length) => length <= most) ?? power;
  return { pixels: um / umPerPixel, label: um >= 1000 ? `${um / 1000} mm` : `${Number(um.toPrecision(1))} µm` };
}

/** Objective magnification by the convention that 10× shows 1 µm per pixel. */
export function magnification(umPerPixel) {
  const value = 10 / umPerPixel;
  if (value >= 9.95) return `${value.toFixed(0)}×`;
  return `${value.toFixed(value < 1 ? 2 : 1)}×`;
}
