// The slide on the screen: OpenSeadragon over the service's tiles, with the overlay and the highlight above.

import { tileAddress } from "./api.js";
import { tiledImage } from "./geometry.js";

const PATIENCE = 2500;

/** One place in the stack of pictures; shows at most one layer at a time. */
export class Layer {
  constructor(viewer, geometry, index) {
    this.viewer = viewer;
    this.geometry = geometry;
    this.index = index;
    this.opacity = 1;
    this.key = null;
    this.item = null;
    this.coming = null;
  }

  /** Shows tiles of `address(level, column, row)`; `key` tells whether they are there already. Null shows nothing. */
  show(key, address, level = this.geometry.finest) {
    if (key === this.key) return;
    this.key = key;
    this.forget();
    if (key === null) {
      this.swap(null);
      return;
    }
    // With nothing to replace, tiles may be seen as they come.
    const fresh = this.item === null;
    this.viewer.addTiledImage({
      ...tiledImage(this.geometry, level, address),
      opacity: fresh ? this.opacity : 0,
      preload: true,
      success: ({ item }) => this.loaded(key, item, fresh),
    });
  }

  loaded(key, item, fresh) {
    if (key !== this.key) {
      this.viewer.world.removeItem(item);
      return;
    }
    if (fresh && this.item === null) {
      this.swap(item);
      return;
    }
    this.coming = item;
    const done = () => {
      if (this.coming !== item) return;
      clearTimeout(timer);
      this.coming = null;
      this.swap(item);
    };
    // A slow server is no reason to keep the old picture for ever.
    const timer = setTimeout(done, PATIENCE);
    item.whenFullyLoaded(done);
  }

  swap(item) {
    const world = this.viewer.world;
    if (item) {
      world.setItemIndex(item, Math.min(this.index(), world.getItemCount() - 1));
      item.setOpacity(this.opacity);
    }
    if (this.item) world.removeItem(this.item);
    this.item = item;
    this.viewer.raiseEvent("layer-swapped", { layer: this });
  }

  forget() {
    if (this.coming) this.viewer.world.removeItem(this.coming);
    this.coming = null;
  }

  setOpacity(opacity) {
    this.opacity = opacity;
    this.item?.setOpacity(opacity);
  }
}

const { OpenSeadragon } = window;
const EDGE = 24; // screen pixels from the edge to where something is well seen
const WHITE = "data:image/gif;base64,R0lGODlhAQABAIAAAP///////yH5BAAAAAAALAAAAAABAAEAAAICRAEAOw=="; // of one pixel
const TINY = 14; // screen pixels of what is hardly seen
const AROUND = 4; // sides of a tiny thing that are shown around it
const GESTURES = {
  clickToZoom: false,
  dblClickToZoom: true,
  pinchToZoom: true,
  flickEnabled: true,
  flickMinSpeed: 120,
  flickMomentum: 0.2,
};

/** A viewer in `element`. `overlay` and `mark` are its layers. */
export class SlideViewer {
  constructor(element, id, geometry) {
    this.id = id;
    this.geometry = geometry;
    keepStylesOut();
    this.osd = new OpenSeadragon.Viewer({
      element,
      // The WebGL drawer showed parts of wrong tiles in turned views (6.1.1, software rendering), and a tissue in the
      // wrong place is worse than a slower picture.
      drawer: "canvas",
      tileRetryMax: 3,
      tileRetryDelay: 700,
      tabIndex: "",
      showNavigationControl: false,
      keyboardNavEnabled: false,
      gestureSettingsMouse: GESTURES,
      gestureSettingsTouch: GESTURES,
      gestureSettingsPen: GESTURES,
      animationTime: matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : 0.35,
      springStiffness: 9,
      zoomPerScroll: 1.25,
      minScrollDeltaTime: 20,
      visibilityRatio: 0.3,
      minZoomImageRatio: 0.5,
      maxZoomPixelRatio: 6,
      maxTilesPerFrame: 8,
      imageLoaderLimit: 12,
      timeout: 30000,
      maxImageCacheCount: 600,
      crossOriginPolicy: false,
      preserveImageSizeOnResize: true,
    });
    this.overlay = new Layer(this.osd, geometry, () => this.base);
    this.mark = new Layer(this.osd, geometry, () => this.osd.world.getItemCount() - 1);
    this.base = 0;
  }

  /** Loads the slide itself, or a white ground where its file is not found; resolves when the viewport is usable. */
  open() {
    const { id, geometry } = this;
    const slide = geometry.layers.includes("slide");
    const address = slide ? (...at) => tileAddress(id, "slide", `r=${geometry.revision}`, ...at) : () => WHITE;
    return new Promise((resolve, reject) => {
      this.osd.addTiledImage({
        ...tiledImage(geometry, slide ? geometry.top : geometry.first, address),
        index: 0,
        success: () => {
          this.base = 1;
          this.osd.viewport.goHome(true);
          resolve();
        },
        error: reject,
      });
    });
  }

  /** Tissue, coarse prediction, confidence or improvement; `query` as the service understands it. */
  showOverlay(layer, query) {
    if (!layer) this.overlay.show(null);
    else this.overlay.show(`${layer}?${query}`, (...at) => tileAddress(this.id, layer, query, ...at));
  }

  /** The border of two tissues in the mask that `version` names. */
  showInterface(pair, version) {
    if (!pair) {
      this.mark.show(null);
      return;
    }
    const query = new URLSearchParams({ a: pair[0], b: pair[1], ...version }).toString();
    this.mark.show(`interface?${query}`, (...at) => tileAddress(this.id, "interface", query, ...at));
  }

  /** µm that one screen pixel stands for. */
  get umPerPixel() {
    const zoom = this.osd.viewport.getZoom(true);
    return (this.geometry.mpp * this.geometry.width) / (zoom * this.osd.viewport.getContainerSize().x);
  }

  /** Pixel of the slide → CSS pixel of the viewer. */
  toScreen([x, y]) {
    const point = this.osd.viewport.pixelFromPoint(this.point(x, y), true);
    return [point.x, point.y];
  }

  /** CSS pixel of the viewer → pixel of the slide. */
  toSlide([x, y]) {
    const point = this.osd.viewport.pointFromPixel(new OpenSeadragon.Point(x, y), true);
    return [point.x * this.geometry.width, point.y * this.geometry.width];
  }

  point(x, y) {
    return new OpenSeadragon.Point(x / this.geometry.width, y / this.geometry.width);
  }

  /** Shows a box of the slide's pixels with some room around it. */
  fitBox(box, room = 0.08) {
    this.osd.viewport.fitBounds(this.roomy(box, room));
  }

  /** A box in the viewer's unit, with some room around it. */
  roomy({ left, top, width, height }, room) {
    const side = this.geometry.width;
    const margin = Math.max(width, height) * room;
    return new OpenSeadragon.Rect(
      (left - margin) / side,
      (top - margin) / side,
      (width + 2 * margin) / side,
      (height + 2 * margin) / side,
    );
  }

  /** Moves so that a box is seen, or `place` in it where it is larger than the screen; zooms in on what is tiny. */
  reveal({ left, top, width, height }, place) {
    const { viewport } = this.osd;
    const size = viewport.getContainerSize();
    const corners = [0, 1].flatMap((right) => [0, 1].map((down) => [left + right * width, top + down * height]));
    const points = corners.map(([x, y]) => viewport.pixelFromPoint(this.point(x, y)));
    const spans = ["x", "y"].map((axis) => {
      const values = points.map((point) => point[axis]);
      return [Math.min(...values), Math.max(...values), size[axis]];
    });
    const longest = Math.max(...spans.map(([first, last]) => last - first));
    const fits = spans.every(([first, last, all]) => last - first <= all - 2 * EDGE);
    const seen = spans.every(([first, last, all]) => first >= EDGE && last <= all - EDGE);
    if (longest < TINY) viewport.fitBounds(this.roomy({ left, top, width, height }, AROUND));
    else if (!fits) viewport.panTo(this.point(...place));
    else if (!seen) viewport.panTo(this.point(left + width / 2, top + height / 2));
  }

  zoomBy(factor) {
    this.osd.viewport.zoomBy(factor);
    this.osd.viewport.applyConstraints();
  }

  /** Moves the picture by a part of the screen's size. */
  panBy(x, y) {
    const size = this.osd.viewport.getContainerSize();
    const delta = this.osd.viewport.deltaPointsFromPixels(new OpenSeadragon.Point(x * size.x, y * size.y));
    this.osd.viewport.panBy(delta);
    this.osd.viewport.applyConstraints();
  }

  /** Turns by the shorter way, so that a small change does not spin the slide. */
  rotateTo(degrees) {
    const now = this.osd.viewport.getRotation();
    this.osd.viewport.rotateTo(now + ((((degrees - now) % 360) + 540) % 360) - 180);
  }

  get middle() {
    const size = this.osd.viewport.getContainerSize();
    return [size.x / 2, size.y / 2];
  }

  destroy() {
    this.osd.destroy();
  }
}

/**
 * The viewer would add a style element for touch screens, which the page's security policy forbids. It looks for one of
 * this kind first; ours is of no known namespace, so that no browser takes it for a style.
 */
function keepStylesOut() {
  if (document.querySelector("style[data-openseadragon-mobile-css]")) return;
  const marker = document.createElementNS("urn:ntrm", "style");
  marker.setAttribute("data-openseadragon-mobile-css", "");
  document.head.append(marker);
}
