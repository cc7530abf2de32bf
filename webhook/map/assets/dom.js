// Elements with text in them; no text of a user ever becomes HTML.

export const byId = (id) => document.getElementById(id);

export function element(tag, { text, className, ...attributes } = {}, children = []) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = clean(text);
  if (className) made.className = className;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// Control characters and marks that change the direction of text are shown, not obeyed.
export function clean(text) {
  return String(text).replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, (char) =>
    `\\u${char.codePointAt(0).toString(16).padStart(4, "0")}`);
}

// `columns`: [title, is a number]; rows of texts or elements.
export function tableOf(columns, rows, { caption } = {}) {
  const cell = (tag, value, number) => {
    const made = value instanceof Node ? element(tag, {}, [value]) : element(tag, { text: value ?? "" });
    if (number) made.className = "number";
    if (tag === "th") made.scope = "col";
    return made;
  };
  const head = element("thead", {}, [element("tr", {}, columns.map(([title, number]) => cell("th", title, number)))]);
  const body = element("tbody", {}, rows.map((row) => element("tr", {}, row.map((value, at) => cell("td", value, columns[at][1])))));
  return element("table", {}, [...(caption ? [element("caption", { text: caption })] : []), head, body]);
}

// A table of the first rows, and a button below it that shows as many more.
export function paged(caption, columns, rows, atOnce) {
  const table = tableOf(columns, rows.slice(0, atOnce), { caption: `${caption} (${rows.length.toLocaleString("en")})` });
  if (rows.length <= atOnce) return [table];
  let shown = atOnce;
  const more = element("button", { type: "button", text: `${atOnce} more ${caption.toLowerCase()}` });
  more.addEventListener("click", () => {
    const next = tableOf(columns, rows.slice(shown, shown + atOnce));
    table.tBodies[0].append(...next.tBodies[0].rows);
    shown += atOnce;
    more.hidden = shown >= rows.length;
  });
  return [table, more];
}

export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return element("dl", { className: "facts" }, shown.flatMap(([name, value]) => [element("dt", { text: name }), element("dd", { text: value })]));
}
