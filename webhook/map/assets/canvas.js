// Draws the map on a canvas. How much of a host is drawn depends on how many are in view: a picture of all their GPUs
// (Overview), stripes of its gangs, or its GPUs one by one with its name.
import { Fills, themeNow } from "./looks.js";
import { cellAt, cellsIn } from "./layout.js";
import { Overview } from "./overview.js";

const STRIPES_TO = 2000; // hosts in view that are drawn one by one: a frame stays below 16 ms
const SQUARES_TO = 400; // of these, drawn with their GPUs
const SQUARES_FROM = 22; // pixels of a cell's width
const NAMES_FROM = 74;
const MARGIN = 14;
const SCALES = { least: 0.01, most: 8 };
const LARGEST_FIT = 3.2;
const PALE = 0.22;
const MOST_WIDTHS = 20000;
const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif';

export class MapCanvas {
  #base;
  #area;
  #fills;
  #overview = new Overview();
  #drawn = { layout: null, scene: null, theme: null }; // what the overview shows
  #layout = null;
  #camera = { x: 0, y: 0, scale: 1 };
  #fitted = true;
  #size = { width: 800, height: 600 };
  #widths = new Map(); // of texts, for a font of one pixel

  // `base` is painted; `area`, as large, gets what the pointer and the keys do.
  constructor(base, area) {
    this.#base = base.getContext("2d", { alpha: false });
    this.#area = area;
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
    const { clientWidth: width, clientHeight: height } = this.#area;
    if (!width || !height) return;
    this.#size = { width, height };
    this.#base.canvas.width = Math.round(width * devicePixelRatio);
    this.#base.canvas.height = Math.round(height * devicePixelRatio);
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

  // Moves the map so that a cell can be seen; returns whether it had to.
  reveal(cell) {
    const { left, top, width, height } = this.#onPage(cell);
    const size = this.size;
    const before = { ...this.#camera };
    if (left < 0 || left + width > size.width) this.pan(size.width / 2 - left, 0);
    if (top < 0 || top + height > size.height) this.pan(0, size.height / 2 - top);
    return before.x !== this.#camera.x || before.y !== this.#camera.y;
  }

  cellAt(point) {
    const { x, y } = this.#toMap(point);
    return this.#layout ? cellAt(this.#layout, x, y) : null;
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

  // `scene`: {looks, bright(host), marked: host name -> kind, near: path or null}; another object when it has changed.
  paint(scene) {
    const started = performance.now();
    const theme = themeNow();
    const ink = this.#base;
    ink.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    ink.fillStyle = theme.page;
    ink.fillRect(0, 0, this.size.width, this.size.height);
    if (!this.#layout) return;
    for (const box of this.#layout.boxes) if (this.#seen(box)) this.#paintBox(box, theme, scene);
    const groups = this.#layout.groups.filter((group) => this.#seen(group)).map((group) => ({ group, cells: this.#cellsSeen(group) }));
    const hosts = groups.reduce((sum, { cells }) => sum + cells.length, 0);
    const detail = hosts > STRIPES_TO ? "racks" : hosts > SQUARES_TO ? "hosts" : "gpus";
    if (detail === "racks") this.#paintAfar(groups, theme, scene);
    else for (const { cells } of groups) for (const cell of cells) this.#paintCell(cell, detail, theme, scene);
    Object.assign(ink.canvas.dataset, { detail, drawn: hosts, milliseconds: (performance.now() - started).toFixed(1) });
  }

  #cellsSeen(group) {
    const { x, y } = this.#toMap({ x: 0, y: 0 });
    const { columns, rows } = cellsIn(group, { x, y, width: this.size.width / this.#camera.scale, height: this.size.height / this.#camera.scale });
    if (columns[1] - columns[0] === group.columns) return group.cells.slice(rows[0] * group.columns, rows[1] * group.columns);
    const found = [];
    for (let row = rows[0]; row < rows[1]; row += 1) found.push(...group.cells.slice(row * group.columns + columns[0], Math.min(row * group.columns + columns[1], group.cells.length)));
    return found;
  }

  #paintAfar(groups, theme, scene) {
    const drawn = { layout: this.#layout, scene, theme };
    if (drawn.layout !== this.#drawn.layout) this.#overview.lay(this.#layout);
    if (Object.keys(drawn).some((key) => drawn[key] !== this.#drawn[key])) this.#overview.draw(scene, theme);
    this.#drawn = drawn;
    for (const { group } of groups) this.#overview.paint(this.#base, group, this.#onPage(group));
    if (scene.marked.size) for (const { cells } of groups) for (const cell of cells) this.#mark(cell, this.#onPage(cell), theme, scene);
  }

  #paintBox(box, theme, scene) {
    const ink = this.#base;
    const { left, top, width, height } = this.#onPage(box);
    const near = scene.near?.length === box.path.length && scene.near.every((name, at) => name === box.path[at]);
    const round = Math.min(8, 6 * this.#camera.scale);
    ink.fillStyle = box.lowest ? theme.box : theme.inner;
    ink.strokeStyle = near ? theme.accent : theme.line;
    ink.lineWidth = near ? 2.5 : 1;
    if (round < 1.5) {
      ink.fillRect(left, top, width, height);
      ink.strokeRect(left, top, width, height);
    } else {
      ink.beginPath();
      ink.roundRect(left, top, width, height, round);
      ink.fill();
      ink.stroke();
    }
    const size = Math.min(15, box.title * 0.74 * this.#camera.scale);
    if (size < 7) return;
    ink.fillStyle = near ? theme.accent : box.lowest ? theme.quiet : theme.text;
    const inset = Math.max(4, 9 * this.#camera.scale);
    this.#text(box.path.at(-1), left + inset, top + (box.title * 0.5 + 4) * this.#camera.scale, width - 2 * inset, size, box.lowest ? 500 : 650);
  }

  // Writes a text that is cut where it would not fit.
  #text(text, x, y, width, size, weight = 400) {
    const ink = this.#base;
    ink.font = `${weight} ${size}px ${FONT}`;
    ink.textBaseline = "middle";
    let shown = text.length > 80 ? `${text.slice(0, 79)}…` : text;
    while (shown.length > 1 && this.#widthOf(shown, weight) * size > width) shown = `${shown.slice(0, shown.endsWith("…") ? -2 : -1)}…`;
    if (this.#widthOf(shown, weight) * size <= width) ink.fillText(shown, x, y);
  }

  // Measured once: texts are drawn again in every frame. A font is near enough as wide as its size.
  #widthOf(text, weight) {
    const key = `${weight} ${text}`;
    if (!this.#widths.has(key)) {
      const ink = this.#base;
      const font = ink.font;
      ink.font = `${weight} 20px ${FONT}`;
      if (this.#widths.size > MOST_WIDTHS) this.#widths.clear();
      this.#widths.set(key, ink.measureText(text).width / 20);
      ink.font = font;
    }
    return this.#widths.get(key);
  }

  #paintCell(cell, detail, theme, scene) {
    const ink = this.#base;
    const at = this.#onPage(cell);
    ink.globalAlpha = scene.bright(cell.host) ? 1 : PALE;
    if (detail === "gpus" && at.width >= SQUARES_FROM) this.#squares(cell.host, at, theme, scene);
    else this.#stripes(cell.host, at, theme, scene);
    if (cell.host.out !== null && cell.host.parts.every((part) => part.state !== "out")) this.#cross(at, theme);
    ink.globalAlpha = 1;
    this.#mark(cell, at, theme, scene);
  }

  #mark(cell, { left, top, width, height }, theme, scene) {
    const kind = scene.marked.get(cell.host.name);
    if (!kind) return;
    const ink = this.#base;
    ink.strokeStyle = kind === "room" ? theme.good : kind === "way" ? theme.bad : theme.accent;
    ink.lineWidth = width < 16 ? 1.5 : 2.5;
    ink.setLineDash(kind === "way" ? [3, 2] : []);
    ink.strokeRect(left - 1, top - 1, width + 2, height + 2);
    ink.setLineDash([]);
  }

  #stripes(host, { left, top, width, height }, theme, scene) {
    const ink = this.#base;
    let x = left;
    for (const part of host.parts) {
      const wide = (width * part.count) / host.total;
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
      ink.fillStyle = theme.quiet;
      this.#text(host.name, left + 5, top + title * 0.6, width - 10, title * 0.72);
    }
    const { total } = host;
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
    const width = this.#widthOf(String(number), 650) * size + 4;
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

  // Puts an element around a cell; hides it without one.
  surround(element, cell) {
    element.hidden = cell === null;
    if (cell === null) return;
    const { left, top, width, height } = this.#onPage(cell);
    Object.assign(element.style, { transform: `translate(${left - 3}px, ${top - 3}px)`, width: `${width + 6}px`, height: `${height + 6}px` });
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
