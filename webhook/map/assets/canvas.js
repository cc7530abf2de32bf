// Draws the map on two canvases: below everything that changes with the frame, above what changes with the pointer.
import { Fills, themeNow } from "./looks.js";
import { cellAt } from "./layout.js";

const SQUARES_FROM = 22; // pixels of a cell's width: from here on its GPUs are squares, below they are stripes
const NAMES_FROM = 74;
const MARGIN = 14;
const SCALES = { least: 0.01, most: 8 };
const LARGEST_FIT = 3.2;
const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif';

export class MapCanvas {
  #base;
  #overlay;
  #fills;
  #layout = null;
  #camera = { x: 0, y: 0, scale: 1 };
  #fitted = true;
  #size = { width: 800, height: 600 };

  constructor(base, overlay) {
    this.#base = base.getContext("2d", { alpha: false });
    this.#overlay = overlay.getContext("2d");
    this.#fills = new Fills(this.#base);
  }

  // In pixels of the page; while the map is hidden that of before.
  get size() {
    return this.#size;
  }

  get aspect() {
    return this.#size.width / this.#size.height;
  }

  show(layout) {
    this.#layout = layout;
    if (this.#fitted) this.fit();
  }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.#overlay.canvas;
    if (!width || !height) return;
    this.#size = { width, height };
    for (const { canvas } of [this.#base, this.#overlay]) {
      canvas.width = Math.round(width * devicePixelRatio);
      canvas.height = Math.round(height * devicePixelRatio);
    }
    if (this.#fitted && this.#layout) this.fit();
  }

  fit() {
    const { width, height } = this.size;
    const scale = Math.max(SCALES.least, Math.min((width - 2 * MARGIN) / this.#layout.width, (height - 2 * MARGIN) / this.#layout.height, LARGEST_FIT));
    this.#camera = { x: this.#layout.width / 2 - width / 2 / scale, y: this.#layout.height / 2 - height / 2 / scale, scale };
    this.#fitted = true;
  }

  zoom(factor, at = { x: this.size.width / 2, y: this.size.height / 2 }) {
    const scale = Math.min(SCALES.most, Math.max(SCALES.least, this.#camera.scale * factor));
    const { x, y } = this.#toMap(at);
    this.#camera = { x: x - at.x / scale, y: y - at.y / scale, scale };
    this.#fitted = false;
  }

  pan(dx, dy) {
    this.#camera.x -= dx / this.#camera.scale;
    this.#camera.y -= dy / this.#camera.scale;
    this.#fitted = false;
  }

  // Moves the map so that a cell can be seen.
  reveal(cell) {
    const { left, top, width, height } = this.#onPage(cell);
    const size = this.size;
    if (left < 0 || left + width > size.width) this.pan(size.width / 2 - left, 0);
    if (top < 0 || top + height > size.height) this.pan(0, size.height / 2 - top);
  }

  cellAt(point) {
    const { x, y } = this.#toMap(point);
    return this.#layout ? cellAt(this.#layout, x, y) : null;
  }

  onPage(cell) {
    return this.#onPage(cell);
  }

  #toMap({ x, y }) {
    return { x: x / this.#camera.scale + this.#camera.x, y: y / this.#camera.scale + this.#camera.y };
  }

  #onPage({ x, y, width, height }) {
    const { scale } = this.#camera;
    return { left: (x - this.#camera.x) * scale, top: (y - this.#camera.y) * scale, width: width * scale, height: height * scale };
  }

  #seen(box) {
    const { left, top, width, height } = this.#onPage(box);
    return left < this.size.width && top < this.size.height && left + width > 0 && top + height > 0;
  }

  // `scene`: {looks, shown(host): 0 to 1, marked: host name -> kind, near: path or null}
  paint(scene) {
    const started = performance.now();
    const theme = themeNow();
    const ink = this.#base;
    ink.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    ink.fillStyle = theme.page;
    ink.fillRect(0, 0, this.size.width, this.size.height);
    if (!this.#layout) return;
    for (const box of this.#layout.boxes) if (this.#seen(box)) this.#paintBox(box, theme, scene);
    let drawn = 0;
    for (const cell of this.#layout.cells) {
      if (!this.#seen(cell)) continue;
      this.#paintCell(cell, theme, scene);
      drawn += 1;
    }
    Object.assign(ink.canvas.dataset, { drawn, milliseconds: (performance.now() - started).toFixed(1) });
  }

  #paintBox(box, theme, scene) {
    const ink = this.#base;
    const { left, top, width, height } = this.#onPage(box);
    const near = scene.near?.length === box.path.length && scene.near.every((name, at) => name === box.path[at]);
    ink.beginPath();
    ink.roundRect(left, top, width, height, Math.min(8, 6 * this.#camera.scale));
    ink.fillStyle = box.lowest ? theme.box : theme.inner;
    ink.fill();
    ink.strokeStyle = near ? theme.accent : theme.line;
    ink.lineWidth = near ? 2.5 : 1;
    ink.stroke();
    const size = Math.min(15, box.title * 0.74 * this.#camera.scale);
    if (size < 7) return;
    ink.font = `${box.lowest ? 500 : 650} ${size}px ${FONT}`;
    ink.fillStyle = near ? theme.accent : box.lowest ? theme.quiet : theme.text;
    const inset = Math.max(4, 9 * this.#camera.scale);
    this.#text(box.path.at(-1), left + inset, top + (box.title * 0.5 + 4) * this.#camera.scale, width - 2 * inset, { middle: true });
  }

  // Writes a text that is cut where it would not fit.
  #text(text, x, y, width, { middle = false } = {}) {
    const ink = this.#base;
    ink.textBaseline = middle ? "middle" : "top";
    let shown = text.length > 80 ? `${text.slice(0, 79)}…` : text;
    while (shown.length > 1 && ink.measureText(shown).width > width) shown = `${shown.slice(0, shown.endsWith("…") ? -2 : -1)}…`;
    if (ink.measureText(shown).width <= width) ink.fillText(shown, x, y);
  }

  #paintCell(cell, theme, scene) {
    const ink = this.#base;
    const at = this.#onPage(cell);
    ink.globalAlpha = scene.shown(cell.host);
    if (at.width < SQUARES_FROM) this.#stripes(cell.host, at, theme, scene);
    else this.#squares(cell.host, at, theme, scene);
    if (cell.host.out !== null && cell.host.parts.every((part) => part.state !== "out")) this.#cross(at, theme);
    ink.globalAlpha = 1;
    const mark = scene.marked.get(cell.host.name);
    if (mark) this.#outline(at, mark === "room" ? theme.good : mark === "way" ? theme.bad : theme.accent, mark === "way" ? [3, 2] : []);
  }

  #stripes(host, { left, top, width, height }, theme, scene) {
    const ink = this.#base;
    const total = host.parts.reduce((sum, part) => sum + part.count, 0);
    let x = left;
    for (const part of host.parts) {
      const wide = (width * part.count) / total;
      ink.fillStyle = theme.small[part.state] ?? this.#fill(part, theme, scene);
      ink.fillRect(x, top, wide, height);
      x += wide;
    }
  }

  #squares(host, { left, top, width, height }, theme, scene) {
    const ink = this.#base;
    const named = width >= NAMES_FROM;
    const title = named ? Math.min(16, height * 0.3) : 0;
    ink.beginPath();
    ink.roundRect(left, top, width, height, Math.min(4, width / 12));
    ink.fillStyle = theme.inner;
    ink.fill();
    ink.strokeStyle = host.out === null ? theme.line : theme.outLine;
    ink.lineWidth = 1;
    ink.stroke();
    if (named) {
      ink.font = `${title * 0.72}px ${FONT}`;
      ink.fillStyle = theme.quiet;
      this.#text(host.name, left + 5, top + title * 0.6, width - 10, { middle: true });
    }
    const total = host.parts.reduce((sum, part) => sum + part.count, 0);
    const columns = total <= 3 ? total : Math.ceil(total / Math.max(1, Math.round(Math.sqrt(total / 2))));
    const rows = Math.ceil(total / columns);
    const gap = width > 50 ? 2 : 1;
    const pad = width > 50 ? 4 : 2;
    const [wide, high] = [(width - 2 * pad + gap) / columns, (height - title - 2 * pad + gap) / rows];
    let number = 0;
    for (const part of host.parts) {
      ink.fillStyle = this.#fill(part, theme, scene);
      ink.strokeStyle = part.state === "kept" ? theme.keptLine : part.state === "out" ? theme.outLine : theme.freeLine;
      const first = number;
      for (let one = 0; one < part.count; one += 1, number += 1) {
        const [x, y] = [left + pad + (number % columns) * wide, top + title + pad + Math.floor(number / columns) * high];
        ink.fillRect(x, y, wide - gap, high - gap);
        if (part.state !== "gang" && part.state !== "other") ink.strokeRect(x + 0.5, y + 0.5, wide - gap - 1, high - gap - 1);
      }
      if (part.gang !== null && number > first) this.#number(scene.looks.number(part.gang), left + pad + (first % columns) * wide, top + title + pad + Math.floor(first / columns) * high, Math.min(part.count, columns - (first % columns)) * wide - gap, high - gap, theme);
    }
  }

  // The number of a gang on the first of its GPUs.
  #number(number, x, y, wide, high, theme) {
    const ink = this.#base;
    const size = Math.min(11, high - 2, wide / (0.62 * String(number).length + 0.4));
    if (size < 6) return;
    ink.font = `650 ${size}px ${FONT}`;
    const width = ink.measureText(String(number)).width + 4;
    ink.fillStyle = "#10151dcc";
    ink.fillRect(x + 1, y + 1, width, size + 2);
    ink.fillStyle = theme.ink;
    ink.textBaseline = "top";
    ink.fillText(String(number), x + 3, y + 2.5);
  }

  #cross({ left, top, width, height }, theme) {
    const ink = this.#base;
    ink.strokeStyle = theme.outLine;
    ink.lineWidth = width < 20 ? 1 : 1.5;
    ink.beginPath();
    ink.moveTo(left, top);
    ink.lineTo(left + width, top + height);
    ink.moveTo(left + width, top);
    ink.lineTo(left, top + height);
    ink.stroke();
  }

  #fill(part, theme, scene) {
    if (part.gang === null) return this.#fills.state(part.state, theme);
    return this.#fills.gang(scene.looks.number(part.gang), theme, { coming: part.state === "reserved" });
  }

  #outline({ left, top, width, height }, colour, dashes, ink = this.#base) {
    ink.strokeStyle = colour;
    ink.lineWidth = width < 16 ? 1.5 : 2.5;
    ink.setLineDash(dashes);
    ink.strokeRect(left - 1, top - 1, width + 2, height + 2);
    ink.setLineDash([]);
  }

  // Outlines the host under the pointer, and the one that the arrow keys have reached.
  paintPointer({ hovered, focused }) {
    const ink = this.#overlay;
    const theme = themeNow();
    ink.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    ink.clearRect(0, 0, this.size.width, this.size.height);
    if (hovered) this.#outline(this.#onPage(hovered), theme.text, [], ink);
    if (focused) this.#outline(this.#onPage(focused), theme.accent, [5, 3], ink);
  }

  // A small picture of one fill, for lists and the legend.
  swatch(canvas, paint) {
    const ink = canvas.getContext("2d");
    const theme = themeNow();
    ink.setTransform(1, 0, 0, 1, 0, 0);
    ink.fillStyle = paint(this.#fills, theme);
    ink.fillRect(0, 0, canvas.width, canvas.height);
    ink.strokeStyle = theme.freeLine;
    ink.strokeRect(0.5, 0.5, canvas.width - 1, canvas.height - 1);
  }
}
