// Where everything lies: a box for each domain, a cell for each host; hosts in their racks, racks in their blocks.

const CELL = { width: 56, height: 36, gap: 5 };
const PAD = 8;
const TITLES = 13;

const SHAPES = [0.7, 1, 1.4, 2, 2.8]; // width to height of inner boxes: the one with which the whole is seen largest

// Returns {width, height, boxes, cells} in units of the map; cells in the order of the hosts.
export function layOut(hosts, aspect) {
  const root = { path: [], children: new Map(), hosts: [] };
  for (const host of hosts) {
    let box = root;
    for (const name of host.domain) {
      if (!box.children.has(name)) box.children.set(name, { path: [...box.path, name], children: new Map(), hosts: [] });
      box = box.children.get(name);
    }
    box.hosts.push(host);
  }
  let sized = null;
  for (const shape of SHAPES) {
    const tried = measure(root, aspect, shape);
    if (!sized || windowHeight(tried, aspect) < windowHeight(sized, aspect)) sized = tried;
  }
  const boxes = [];
  const cells = new Array(hosts.length);
  put(sized, 0, 0, boxes, cells);
  return { width: sized.width, height: sized.height, boxes, cells };
}

// The height of a window of that aspect into which all of it goes.
function windowHeight(sized, aspect) {
  return Math.max(sized.height, sized.width / aspect);
}

function measure(box, aspect, shape) {
  const inner = [...box.children.values()].map((child) => measure(child, shape, shape));
  const items = [...inner, ...box.hosts.map((host) => ({ host, width: CELL.width, height: CELL.height }))];
  const tallest = inner.reduce((most, one) => Math.max(most, one.height), 0);
  const gap = inner.length ? Math.max(PAD, tallest / 30) : CELL.gap;
  const grid = bestGrid(items, gap, aspect);
  // Titles of large boxes grow with them, so that they can be read from where the whole box is seen.
  const title = box.path.length ? Math.max(TITLES * (inner.length ? 1.4 : 1), grid.height / 18) : 0;
  return { box, items, grid, gap, title, width: grid.width + 2 * PAD, height: grid.height + 2 * PAD + title };
}

// The number of columns with which items in rows come nearest to the wished aspect.
function bestGrid(items, gap, aspect) {
  if (!items.length) return { columns: 1, width: 0, height: 0, widths: [], heights: [] };
  const width = Math.max(...items.map((item) => item.width)) + gap;
  const height = items.reduce((sum, item) => sum + item.height, 0) / items.length + gap;
  const guess = Math.round(Math.sqrt((items.length * aspect * height) / width));
  let best = null;
  for (let columns = Math.max(1, guess - 2); columns <= Math.min(items.length, guess + 2) || !best; columns += 1) {
    const grid = gridOf(items, gap, Math.min(columns, items.length));
    const empty = Math.ceil(items.length / grid.columns) * grid.columns - items.length;
    const worth = Math.abs(Math.log(grid.width / grid.height / aspect)) + (0.5 * empty) / items.length;
    if (!best || worth < best.worth) best = { ...grid, worth };
  }
  return best;
}

function gridOf(items, gap, columns) {
  const widths = new Array(columns).fill(0);
  const heights = new Array(Math.ceil(items.length / columns)).fill(0);
  items.forEach((item, at) => {
    const [row, column] = [Math.floor(at / columns), at % columns];
    widths[column] = Math.max(widths[column], item.width);
    heights[row] = Math.max(heights[row], item.height);
  });
  const sum = (sizes) => sizes.reduce((total, size) => total + size, 0) + gap * (sizes.length - 1);
  return { columns, widths, heights, width: sum(widths), height: sum(heights) };
}

function put(sized, x, y, boxes, cells) {
  const { box, items, grid, gap, title } = sized;
  const lowest = box.children.size === 0;
  if (box.path.length) boxes.push({ x, y, width: sized.width, height: sized.height, title, path: box.path, lowest });
  let top = y + PAD + title;
  for (let row = 0; row < grid.heights.length; row += 1) {
    let left = x + PAD;
    for (let column = 0; column < grid.columns; column += 1) {
      const item = items[row * grid.columns + column];
      if (item?.host) cells[item.host.index] = { host: item.host, x: left, y: top, width: CELL.width, height: CELL.height };
      else if (item) put(item, left, top, boxes, cells);
      left += grid.widths[column] + gap;
    }
    top += grid.heights[row] + gap;
  }
}

// The cell at a point of the map, or null.
export function cellAt(layout, x, y) {
  return layout.cells.find((cell) => x >= cell.x && x <= cell.x + cell.width && y >= cell.y && y <= cell.y + cell.height) ?? null;
}

// The nearest cell in a direction (dx, dy: -1, 0 or 1); one straight ahead is nearer than one aside.
export function cellBeside(layout, from, dx, dy) {
  let best = null;
  let least = Infinity;
  for (const cell of layout.cells) {
    const ahead = (cell.x - from.x) * dx + (cell.y - from.y) * dy;
    if (ahead <= 0) continue;
    const aside = Math.abs((cell.x - from.x) * dy) + Math.abs((cell.y - from.y) * dx);
    const far = ahead + 3 * aside;
    if (far < least) [best, least] = [cell, far];
  }
  return best;
}
