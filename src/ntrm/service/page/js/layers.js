// What lies over the slide. A new picture is loaded unseen and only then takes the old one's place: no flicker.

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
