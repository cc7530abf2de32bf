// The hosts from afar: one picture of all of them, with eight pixels for the GPUs of each. It is painted rack by rack
// while more hosts are in view than can be told apart, and made again only when something about them changes.
import { mixed } from "./looks.js";

const PIXELS = 8; // of a host, side by side
const WASHED_OUT = 0.22; // share that is left of the colour of a host that is not meant
const TALLEST = 4096; // pixels of the picture's height, after which groups go beside each other

export class Overview {
  #canvas = document.createElement("canvas");
  #ink = this.#canvas.getContext("2d");
  #places = new Map();
  #image = null;

  // Gives each group of a layout its place in the picture.
  lay(layout) {
    this.#places.clear();
    let [left, top, widest, height] = [0, 0, 0, 0];
    for (const group of layout.groups) {
      if (top && top + group.rows > TALLEST) [left, top, widest] = [left + widest, 0, 0];
      this.#places.set(group, { left, top });
      widest = Math.max(widest, group.columns * PIXELS);
      height = Math.max(height, (top += group.rows));
    }
    [this.#canvas.width, this.#canvas.height] = [Math.max(1, left + widest), Math.max(1, height)];
    this.#image = this.#ink.createImageData(this.#canvas.width, this.#canvas.height);
  }

  // `scene` as of MapCanvas.paint.
  draw(scene, theme) {
    const colours = new Map();
    const colourOf = (part, bright) => {
      const key = `${part.gang ?? ""} ${part.state} ${bright}`;
      if (!colours.has(key)) colours.set(key, pixelOf(bright ? scene.looks.plain(part, theme) : mixed(theme.box, scene.looks.plain(part, theme), WASHED_OUT)));
      return colours.get(key);
    };
    const pixels = new Uint32Array(this.#image.data.buffer);
    for (const [group, { left, top }] of this.#places) {
      group.cells.forEach(({ host }, at) => {
        let pixel = (top + Math.floor(at / group.columns)) * this.#image.width + left + (at % group.columns) * PIXELS;
        const bright = scene.bright(host);
        let [before, painted] = [0, 0];
        for (const part of host.parts) {
          before += part.count;
          const end = Math.round((before / host.total) * PIXELS);
          if (end === painted) continue;
          const colour = colourOf(part, bright);
          for (; painted < end; painted += 1) pixels[pixel++] = colour;
        }
      });
    }
    this.#ink.putImageData(this.#image, 0, 0);
  }

  paint(ink, group, { left, top, width, height }) {
    const place = this.#places.get(group);
    ink.imageSmoothingEnabled = false;
    ink.drawImage(this.#canvas, place.left, place.top, group.columns * PIXELS, group.rows, left, top, width, height);
  }
}

// A colour `#rrggbb` as a pixel of an image, whose bytes are red, green, blue, opacity.
function pixelOf(colour) {
  const [red, green, blue] = [1, 3, 5].map((at) => Number.parseInt(colour.slice(at, at + 2), 16));
  return new Uint32Array(new Uint8Array([red, green, blue, 255]).buffer)[0];
}
