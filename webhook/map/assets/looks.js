// The look of a gang: a colour of a palette for colour-blind people, a pattern, and a number. Neighbours in the list
// differ in all three; forty looks differ from each other.

// Okabe and Ito's palette without black, and one more; each readable on a light and on a dark page.
const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8a6fdf", "#b5a900"];
const PATTERNS = ["solid", "rising", "dots", "level", "falling"];
const LOOKS = COLOURS.length * PATTERNS.length;

const THEMES = {
  light: { page: "#eef1f5", box: "#ffffff", inner: "#f6f8fb", line: "#c3ccd8", text: "#17202c", quiet: "#515c6b",
    free: "#ffffff", freeLine: "#8fa0b5", other: "#8d98a6", out: "#d9dee5", outLine: "#a33a1a", kept: "#fff3c4", keptLine: "#8a6d00",
    accent: "#0b5cad", bad: "#b42318", good: "#0f7a43", ink: "#ffffff", stripe: "#ffffff", small: { free: "#dbe2eb", out: "#d99b88" } },
  dark: { page: "#0b1018", box: "#141c28", inner: "#101722", line: "#303c50", text: "#e6ecf5", quiet: "#a3b0c2",
    free: "#0e1520", freeLine: "#51617a", other: "#626e80", out: "#232b38", outLine: "#ff8a5c", kept: "#3a3210", keptLine: "#e6c84a",
    accent: "#7cb8ff", bad: "#ff7b6b", good: "#6fdc9d", ink: "#ffffff", stripe: "#0b1018", small: { free: "#222d3d", out: "#a3573c" } },
};

export function themeNow() {
  const chosen = document.documentElement.dataset.theme;
  const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  return dark ? THEMES.dark : THEMES.light;
}

// Gives every gang a number and keeps it as long as the gang is there; numbers of gangs that are gone are used again.
export class Looks {
  #numbers = new Map();

  update(ids) {
    const present = new Set(ids);
    for (const id of this.#numbers.keys()) if (!present.has(id)) this.#numbers.delete(id);
    const taken = new Set(this.#numbers.values());
    let next = 1;
    for (const id of ids) {
      if (this.#numbers.has(id)) continue;
      while (taken.has(next)) next += 1;
      taken.add(next);
      this.#numbers.set(id, next);
    }
  }

  number(id) {
    return this.#numbers.get(id) ?? 0;
  }

  // The colour of a part alone, where patterns cannot be seen.
  plain({ state, gang }, theme) {
    if (gang !== null) {
      const { colour } = lookOf(this.number(gang));
      return state === "reserved" ? mixed(theme.free, colour, 0.5) : colour;
    }
    if (state === "kept") return mixed(theme.kept, theme.keptLine, 0.4);
    if (state === "unknown") return mixed(theme.free, theme.quiet, 0.3);
    return theme.small[state] ?? theme.other;
  }
}

// The colour and the pattern of a gang's number.
export function lookOf(number) {
  const look = (number + LOOKS - 1) % LOOKS;
  return { colour: COLOURS[look % COLOURS.length], pattern: PATTERNS[look % PATTERNS.length] };
}

// So much of the second colour in the first; both and the result are `#rrggbb`.
export function mixed(first, second, share) {
  const parts = [1, 3, 5].map((at) => {
    const [from, to] = [first, second].map((colour) => Number.parseInt(colour.slice(at, at + 2), 16));
    return Math.round(from + (to - from) * share).toString(16).padStart(2, "0");
  });
  return `#${parts.join("")}`;
}

// Fills for canvases, made once for each theme and kind of fill.
export class Fills {
  #context;
  #made = new Map();
  #theme = null;

  constructor(context) {
    this.#context = context;
  }

  gang(number, theme, { coming = false } = {}) {
    const { colour, pattern } = lookOf(number);
    return this.#get(`gang ${colour} ${pattern} ${coming}`, theme, () =>
      coming ? this.#pattern("falling", theme.free, colour, 2) : this.#pattern(pattern, colour, theme.stripe, 1));
  }

  state(name, theme) {
    return this.#get(name, theme, () => {
      if (name === "out") return this.#pattern("cross", theme.out, theme.outLine, 1);
      if (name === "kept") return this.#pattern("dots", theme.kept, theme.keptLine, 1.4);
      if (name === "unknown") return this.#pattern("dots", theme.free, theme.quiet, 1);
      return name === "other" ? theme.other : theme.free;
    });
  }

  #get(key, theme, make) {
    if (theme !== this.#theme) this.#made.clear();
    this.#theme = theme;
    if (!this.#made.has(key)) this.#made.set(key, make());
    return this.#made.get(key);
  }

  #pattern(name, colour, stripe, width) {
    if (name === "solid") return colour;
    const size = 8;
    const tile = document.createElement("canvas");
    tile.width = tile.height = size;
    const ink = tile.getContext("2d");
    ink.fillStyle = colour;
    ink.fillRect(0, 0, size, size);
    ink.strokeStyle = ink.fillStyle = stripe;
    ink.globalAlpha = width > 1 ? 1 : 0.6;
    ink.lineWidth = width * 1.2;
    ink.beginPath();
    for (const at of [-size, 0, size]) {
      if (name === "rising" || name === "cross") { ink.moveTo(at - 1, size + 1); ink.lineTo(at + size + 1, -1); }
      if (name === "falling" || name === "cross") { ink.moveTo(at - 1, -1); ink.lineTo(at + size + 1, size + 1); }
    }
    if (name === "level") { ink.moveTo(0, 2); ink.lineTo(size, 2); ink.moveTo(0, 6); ink.lineTo(size, 6); }
    ink.stroke();
    if (name === "dots") for (const [x, y] of [[2, 2], [6, 6]]) { ink.beginPath(); ink.arc(x, y, width, 0, 7); ink.fill(); }
    return this.#context.createPattern(tile, "repeat");
  }
}
