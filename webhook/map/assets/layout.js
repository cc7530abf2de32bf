// Where everything lies: a box for each domain, a cell for each host; hosts in their racks, racks in their blocks. The
// hosts of a rack are a group: cells of one size in rows, so that the one at a point is found by its row and column.

const CELL = { width: 56, height: 36, gap: 5 };
const PAD = 8;
const TITLES = 13;

const SHAPES = [0.7, 1, 1.4, 2, 2.8]; // width to height of inner boxes: the one with which the whole is seen largest

// Returns {aspect, width, height, boxes, groups, cells} in units of the map; cells in the order of the hosts.
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
  const layout = { aspect, width: sized.width, height: sized.height, boxes: [], groups: [], cells: new Array(hosts.length) };
  put(sized, 0, 0, layout);
  return layout;
}

// Puts the hosts of another moment into the cells; returns whether they are the same ones, so that all of it fits.
export function refilled(layout, hosts, aspect) {
  const same = (host, at) => host.name === layout.cells[at].host.name && host.domain.every((name, level) => name === layout.cells[at].host.domain[level]);
  if (!layout || layout.aspect !== aspect || layout.cells.length !== hosts.length || !hosts.every(same)) return false;
  hosts.forEach((host, at) => { layout.cells[at].host = host; });
  return true;
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

function put(sized, x, y, layout) {
  const { box, items, grid, gap, title } = sized;
  if (box.path.length) layout.boxes.push({ x, y, width: sized.width, height: sized.height, title, path: box.path, lowest: box.children.size === 0 });
  if (box.hosts.length) layout.groups.push(groupOf(box.hosts, x + PAD, y + PAD + title, grid.columns, layout.cells));
  let top = y + PAD + title;
  for (let row = 0; row < grid.heights.length; row += 1) {
    let left = x + PAD;
    for (let column = 0; column < grid.columns; column += 1) {
      const item = items[row * grid.columns + column];
      if (item && !item.host) put(item, left, top, layout);
      left += grid.widths[column] + gap;
    }
    top += grid.heights[row] + gap;
  }
}

// The hosts of one box, which has nothing else in it. Its bounds reach half a gap beyond its cells.
function groupOf(hosts, x, y, columns, all) {
  const [wide, high] = [CELL.width + CELL.gap, CELL.height + CELL.gap];
  const cells = hosts.map((host, at) => {
    const [row, column] = [Math.floor(at / columns), at % columns];
    return (all[host.index] = { host, x: x + column * wide, y: y + row * high, width: CELL.width, height: CELL.height });
  });
  const rows = Math.ceil(cells.length / columns);
  return { x: x - CELL.gap / 2, y: y - CELL.gap / 2, width: columns * wide, height: rows * high, columns, rows, cells };
}

// The rows and columns of a group's cells that lie in an area, as [first, end) each.
export function cellsIn(group, { x, y, width, height }) {
  const between = (from, size, count, start, length) =>
    [Math.max(0, Math.floor(((start - from) / size) * count)), Math.min(count, Math.ceil(((start + length - from) / size) * count))];
  return { columns: between(group.x, group.width, group.columns, x, width), rows: between(group.y, group.height, group.rows, y, height) };
}

// The cell at a point of the map, or null.
export function cellAt(layout, x, y) {
  const group = layout.groups.find((one) => x >= one.x && x < one.x + one.width && y >= one.y && y < one.y + one.height);
  if (!group) return null;
  const [row, column] = [Math.floor(((y - group.y) / group.height) * group.rows), Math.floor(((x - group.x) / group.width) * group.columns)];
  const cell = group.cells[row * group.columns + column];
  return cell && x >= cell.x && x <= cell.x + cell.width && y >= cell.y && y <= cell.y + cell.height ? cell : null;
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
