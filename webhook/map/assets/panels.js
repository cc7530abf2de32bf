// The lists beside the map: gangs that wait, gangs with slots, what fits now, and the legend.
import { idOf, moment, plural, span } from "./model.js";
import { lookOf } from "./looks.js";
import { byId, element, tableOf } from "./dom.js";

const FIRST_LISTED = 30; // rows of a list; each costs a tenth of a millisecond whenever something above it changes
const MORE_LISTED = 100;
const LEGEND = [["other", "in use, no gang"], ["reserved", "reserved, pods to come"], ["kept", "kept for a waiting gang"], ["out", "out of use"], ["free", "free"]];

export function showSummary(view, topology) {
  const { gpus } = topology;
  const levels = topology.levels.map((level) => level.level).join(", ");
  const free = gpus.free === null ? "free GPUs not known" : `${gpus.free.toLocaleString("en")} of ${plural(gpus.total, "GPU")} free`;
  byId("summary").textContent = `${topology.name} (${levels}): ${plural(topology.hosts.length, "host")}, ${free} · ${moment(view.takenAt)}${view.mode === "enforce" ? "" : ` · mode ${view.mode}`}`;
  const parts = gpus.free === null ? [] : [["used", gpus.used, "#0072b2"], ["reserved", gpus.reserved, "#56b4e9"], ["kept", gpus.kept, "#e6c84a"], ["out", gpus.out, "#d55e00"]];
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", `0 0 ${Math.max(1, gpus.total)} 1`);
  svg.setAttribute("preserveAspectRatio", "none");
  let at = 0;
  for (const [, count, colour] of parts) {
    const bar = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    for (const [name, value] of Object.entries({ x: at, y: 0, width: count, height: 1, fill: colour })) bar.setAttribute(name, value);
    svg.append(bar);
    at += count;
  }
  byId("meter").replaceChildren(svg);
}

// `page`: {view, topology, looks, rows, listed, selected, found, swatch(canvas, paint)}
export function showGangs(page) {
  const mine = [...page.view.gangs.values()].filter((gang) => gang.topology === null || gang.topology === page.topology.name);
  const wanted = (gang) => page.found === null || page.found.gangs.has(idOf(gang));
  const phase = (waiting) => mine.filter((gang) => (gang.phase === "Waiting") === waiting && gang.phase !== "Finished");
  const waiting = phase(true);
  const placed = phase(false);
  byId("waiting-title").textContent = `Waiting (${waiting.length})`;
  byId("placed-title").textContent = `Placed (${placed.length})`;
  fill(byId("waiting"), waiting.filter(wanted), page, (gang) => [
    gang.reason || (gang.fitsNow ? "fits now" : ""),
    gang.level && `one ${gang.level}`,
    gang.waitingSeconds !== null && span(gang.waitingSeconds),
    gang.start?.by && !gang.fitsNow && `by ${moment(gang.start.by)}`,
  ]);
  fill(byId("placed"), placed.filter(wanted), page, (gang) => [gang.place, gang.phase, gang.reason]);
}

function fill(list, gangs, page, more) {
  const most = page.listed.get(list.id) ?? FIRST_LISTED;
  const rows = gangs.slice(0, most).map((gang) => rowOf(gang, page, more));
  if (!rows.length) rows.push(element("p", { className: "none", text: "none" }));
  if (gangs.length > most) rows.push(element("button", { type: "button", "data-more": String(most), text: `${Math.min(MORE_LISTED, gangs.length - most)} more of ${gangs.length}` }));
  if (rows.length !== list.children.length || rows.some((one, at) => one !== list.children[at] && !(one.dataset.more && one.isEqualNode(list.children[at])))) list.replaceChildren(...rows);
}

// Lists more rows, and leaves the focus on the first of them.
export function listMore(page, list, most) {
  page.listed.set(list.id, most + MORE_LISTED);
  showGangs(page);
  list.children[most].focus({ preventScroll: true });
}

function rowOf(gang, page, more) {
  const id = idOf(gang);
  if (!page.rows.has(id)) page.rows.set(id, row(gang, id, page, more(gang).filter(Boolean).join(" · ")));
  const found = page.rows.get(id);
  const pressed = String(page.selected === id);
  if (found.getAttribute("aria-pressed") !== pressed) found.setAttribute("aria-pressed", pressed);
  return found;
}

function row(gang, id, page, more) {
  const waits = gang.phase === "Waiting";
  const mark = waits ? element("span", { className: "badge", text: gang.position ?? "–" }) : swatchOf(page.looks.number(id));
  const number = waits ? "" : `${page.looks.number(id)} `;
  return element("button", { type: "button", className: "gang", "data-gang": id }, [
    mark,
    element("span", { className: "name", text: `${number}${gang.namespace}/${gang.name}${gang.group === null ? "" : `[${gang.group}]`}` }),
    element("span", { className: "count", text: waits ? plural(gang.pods.wanted, "pod") : `${gang.pods.bound}/${gang.pods.wanted}` }),
    element("span", { className: "more", text: more }),
  ]);
}

// Not a canvas: hundreds of them would each keep a picture.
function swatchOf(number) {
  const { colour, pattern } = lookOf(number);
  const made = element("span", { className: `swatch ${pattern}`, "aria-hidden": "true" });
  made.style.backgroundColor = colour;
  return made;
}

export function showFits({ view, topology }) {
  const sizes = view.sizes.filter((size) => size.topology === topology.name);
  const names = topology.levels.map((level) => level.level).reverse();
  const rows = sizes.map((size) => [
    size.podGpus ? plural(size.podGpus, "GPU") : "no GPU",
    ...names.map((name) => size.levels.find((level) => level.level === name)?.largestGang ?? "?"),
    size.largestGang ?? "?",
  ]);
  const parts = [tableOf([["Pods of"], ...names.map((name) => [`1 ${name}`, true]), ["anywhere", true]], rows)];
  const split = topology.levels.filter((level) => level.fragmentation !== null && level.level !== names[0]);
  const words = split.map((level) => `${Math.round(level.fragmentation * 100)}% of the room for ${topology.podGpus}-GPU pods is outside of the best ${level.level}`);
  parts.push(element("p", { className: "quiet", text: "The largest gang that starts now, all in one domain of the level." }));
  if (words.length) parts.push(element("p", { className: "quiet", text: `Fragmentation: ${words.join("; ")}.` }));
  if (topology.leftOut.length) parts.push(element("p", { className: "quiet", text: `${plural(topology.leftOut.length, "node")} not in the topology: ${[...new Set(topology.leftOut.map((one) => one.reason))].join(", ")}` }));
  byId("fits").replaceChildren(...parts);
  byId("remarks-panel").hidden = !view.remarks.length;
  byId("remarks").replaceChildren(element("ul", {}, view.remarks.map((text) => element("li", { text }))));
}

export function showLegend(page) {
  const parts = LEGEND.map(([state, words]) => {
    const canvas = element("canvas", { className: "swatch", width: "18", height: "14", "aria-hidden": "true" });
    page.swatch(canvas, (fills, theme) => (state === "reserved" ? fills.gang(1, theme, { coming: true }) : fills.state(state, theme)));
    return element("span", {}, [canvas, element("span", { text: words })]);
  });
  byId("legend").replaceChildren(element("span", { text: "A colour, a pattern and a number for each gang" }), ...parts);
}
