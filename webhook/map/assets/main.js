// Puts the page together: what is shown, what is selected, and what the pointer and the keys do.
import { find, idOf, plural, readFrame } from "./model.js";
import { Looks } from "./looks.js";
import { cellBeside, layOut, refilled } from "./layout.js";
import { MapCanvas } from "./canvas.js";
import { byId, clean, element } from "./dom.js";
import { detailsOf } from "./details.js";
import { listMore, showFits, showGangs, showLegend, showSummary } from "./panels.js";
import { showTables } from "./table.js";
import { Timeline } from "./timeline.js";

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const ZOOM = 1.3;

class Page {
  view = null;
  topology = null;
  selected = null;
  found = null;
  looks = new Looks();
  rows = new Map(); // of the lists, by gang; made when they are first shown
  listed = new Map(); // how many rows of a list are wanted, by its id
  #layout = null;
  #map = new MapCanvas(byId("base"), byId("overlay"));
  #hovered = null;
  #focused = null;
  #asTable = false;
  #shown = null; // the scene, while nothing in it has changed
  #drawing = false;

  constructor() {
    this.#listen();
    this.#map.resize();
  }

  show(frame) {
    const name = this.topology?.name;
    this.view = readFrame(frame);
    this.topology = this.view.topologies.find((one) => one.name === name) ?? this.view.topologies[0];
    const placed = [...this.view.gangs.values()].filter((gang) => gang.hosts.length);
    this.looks.update([...placed.map(idOf), ...this.view.hostsOf.keys()]);
    if (!this.view.gangs.has(this.selected)) this.selected = null;
    byId("topology").replaceChildren(...this.view.topologies.map((one) => element("option", { text: one.name, value: one.name })));
    byId("topology").value = this.topology.name;
    byId("topology-choice").hidden = this.view.topologies.length < 2;
    this.#showTopology();
  }

  #showTopology() {
    const focused = this.#focused?.host.name;
    if (!refilled(this.#layout, this.topology.hosts, this.#map.aspect)) {
      this.#layout = layOut(this.topology.hosts, this.#map.aspect);
      this.#map.show(this.#layout);
    }
    this.#hover(null);
    this.#focused = this.#layout.cells[this.topology.byName.get(focused)?.index] ?? null;
    this.refresh();
  }

  // Everything, of another frame or in another theme.
  refresh() {
    this.#keepingFocus(() => {
      this.rows.clear();
      showSummary(this.view, this.topology);
      showFits(this);
      showLegend(this);
      if (this.#asTable) showTables(this);
      this.#showFound();
      this.#showDetails();
    });
    document.documentElement.dataset.shown = this.view.takenAt;
  }

  // What the search finds.
  #showFound() {
    this.found = find(this.view, this.topology, byId("search").value);
    showGangs(this);
    this.#repaint();
  }

  #keepingFocus(change) {
    const { id, dataset } = document.activeElement ?? {};
    change();
    const again = dataset?.gang ? `[data-gang="${CSS.escape(dataset.gang)}"]` : id ? `#${id}` : null;
    if (again && !document.querySelector(again)?.contains(document.activeElement)) document.querySelector(again)?.focus({ preventScroll: true });
  }

  choose(id) {
    this.selected = this.view.gangs.has(id) ? id : null;
    this.#keepingFocus(() => {
      showGangs(this);
      this.#showDetails();
    });
    this.#repaint();
    if (this.selected) byId("details").scrollIntoView({ block: "start" });
    this.#say(this.selected ? `selected ${this.selected}` : "nothing selected");
  }

  swatch(canvas, paint) {
    this.#map.swatch(canvas, paint);
  }

  #showDetails() {
    const panel = byId("details");
    panel.hidden = this.selected === null;
    if (this.selected === null) return;
    const close = element("button", { type: "button", text: "Close", id: "close" });
    close.addEventListener("click", () => this.choose(null));
    panel.replaceChildren(element("div", { className: "top" }, [element("h2", { text: this.selected }), close]), ...detailsOf(this.view, this.selected));
  }

  // What is bright, what is outlined, and which domain is meant.
  #scene() {
    const told = this.selected === null ? null : this.view.explained.get(this.selected);
    const marked = new Map();
    for (const name of this.view.gangs.get(this.selected)?.keptHosts ?? []) marked.set(name, "chosen");
    for (const one of told?.inTheWay ?? []) for (const name of one.hosts) marked.set(name, "way");
    const near = told?.near ?? null;
    if (near) {
      for (const host of this.topology.hosts) {
        const inside = near.every((name, at) => host.domain[at] === name);
        if (inside && host.slots > 0 && !marked.has(host.name)) marked.set(host.name, "room");
      }
    }
    for (const host of this.found?.hosts ?? []) marked.set(host, "chosen");
    const bright = (host) => {
      if (this.selected !== null && !this.view.hostsOf.has(this.selected) && !marked.size) return true;
      if (this.selected !== null) return host.gangs.has(this.selected) || marked.has(host.name);
      if (this.found === null) return true;
      return this.found.hosts.has(host.name) || [...host.gangs.keys()].some((id) => this.found.gangs.has(id));
    };
    return { looks: this.looks, bright, marked, near };
  }

  // Paints in the next frame, once, whatever asks for it until then: here after a change of what is shown, `#paint`
  // after one of where it is.
  #repaint() {
    this.#shown = null;
    this.#paint();
  }

  #paint() {
    if (this.#drawing) return;
    this.#drawing = true;
    requestAnimationFrame(() => {
      this.#drawing = false;
      this.#map.paint((this.#shown ??= this.#scene()));
      this.#surround();
    });
  }

  #surround() {
    this.#map.surround(byId("hovered"), this.#hovered);
    this.#map.surround(byId("focused"), this.#focused);
  }

  #hover(cell, point) {
    const tip = byId("tip");
    if (cell !== this.#hovered) {
      this.#hovered = cell;
      this.#surround();
      tip.hidden = cell === null;
      if (cell) tip.replaceChildren(element("b", { text: [...cell.host.domain, cell.host.name].join("/") }), ...this.#about(cell.host).map((text) => element("div", { text })));
    }
    if (!cell) return;
    // Towards the middle, so that it fits without being measured.
    const { width, height } = this.#map.size;
    const [left, above] = [point.x > width / 2, point.y > height / 2];
    tip.style.transform = `translate(${point.x + (left ? -14 : 14)}px, ${point.y + (above ? -14 : 14)}px) translate(${left ? -100 : 0}%, ${above ? -100 : 0}%)`;
  }

  // A host in words, one line each.
  #about(host) {
    const { gpus } = host;
    const free = gpus.free === null ? "free GPUs not known" : `${gpus.free} of ${plural(gpus.total, "GPU")} free`;
    const gangs = [...host.gangs].map(([id, one]) => `${this.looks.number(id)} ${id}: ${plural(one.pods, "pod")}${one.reserved ? `, ${one.reserved} to come` : ""}`);
    return [
      free,
      ...(host.out === null ? [] : [`takes no pods: ${host.out}`]),
      ...(host.out === null && gpus.out ? [`${plural(gpus.out, "GPU")} faulty`] : []),
      ...(host.keptFor === null ? [] : [`kept for ${host.keptFor}`]),
      ...gangs,
      ...(host.otherPods ? [`${plural(host.otherPods, "pod")} of no gang`] : []),
    ];
  }

  #focus(cell) {
    if (!cell) return;
    this.#focused = cell;
    if (this.#map.reveal(cell)) this.#paint();
    else this.#surround();
    this.#say([[...cell.host.domain, cell.host.name].join(", "), ...this.#about(cell.host)].join("; "));
  }

  #chooseOn(cell) {
    const ids = cell ? [...cell.host.gangs.keys()].filter((id) => this.view.gangs.has(id)) : [];
    this.choose(ids.length ? ids[(ids.indexOf(this.selected) + 1) % ids.length] : null);
  }

  #say(text) {
    byId("status").textContent = clean(text);
  }

  #zoom(factor, at) {
    this.#map.zoom(factor, at);
    this.#paint();
  }

  #fit() {
    this.#map.fit();
    this.#paint();
  }

  #listen() {
    this.#listenToKeys();
    this.#listenToPointer(byId("overlay"));
    byId("zoom-in").addEventListener("click", () => this.#zoom(ZOOM));
    byId("zoom-out").addEventListener("click", () => this.#zoom(1 / ZOOM));
    byId("zoom-fit").addEventListener("click", () => this.#fit());
    byId("search").addEventListener("input", () => this.#showFound());
    for (const list of ["waiting", "placed"]) byId(list).addEventListener("click", ({ target }) => {
      const id = target.closest("[data-gang]")?.dataset.gang;
      const most = target.closest("[data-more]")?.dataset.more;
      if (id !== undefined) this.choose(this.selected === id ? null : id);
      else if (most !== undefined) listMore(this, byId(list), Number(most));
    });
    byId("topology").addEventListener("change", (event) => {
      this.topology = this.view.topologies.find((one) => one.name === event.target.value);
      this.#showTopology();
    });
    byId("show-table").addEventListener("click", () => this.#toggleTable());
    byId("theme").addEventListener("click", () => this.#nextTheme());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.view && this.refresh());
    new ResizeObserver(() => {
      this.#map.resize();
      if (this.view) this.#paint();
    }).observe(byId("map"));
  }

  #listenToKeys() {
    byId("overlay").addEventListener("keydown", (event) => {
      if (!this.#layout || event.ctrlKey || event.metaKey || event.altKey) return;
      const arrow = ARROWS[event.key];
      if (arrow) this.#focus(this.#focused ? cellBeside(this.#layout, this.#focused, ...arrow) : this.#layout.cells[0]);
      else if (event.key === "Enter" || event.key === " ") this.#chooseOn(this.#focused);
      else if (event.key === "Escape") this.choose(null);
      else if (event.key === "+" || event.key === "=") this.#zoom(ZOOM);
      else if (event.key === "-") this.#zoom(1 / ZOOM);
      else if (event.key === "0") this.#fit();
      else return;
      event.preventDefault();
    });
  }

  #listenToPointer(overlay) {
    let held = null;
    const point = (event) => ({ x: event.offsetX, y: event.offsetY });
    overlay.addEventListener("pointerdown", (event) => {
      held = { ...point(event), moved: false };
      overlay.setPointerCapture(event.pointerId);
    });
    overlay.addEventListener("pointermove", (event) => {
      const at = point(event);
      if (held && (held.moved || Math.hypot(at.x - held.x, at.y - held.y) > 4)) {
        this.#map.pan(at.x - held.x, at.y - held.y);
        held = { ...at, moved: true };
        this.#paint();
      }
      this.#hover(held?.moved ? null : this.#map.cellAt(at), at);
    });
    overlay.addEventListener("pointerup", (event) => {
      if (held && !held.moved) this.#chooseOn(this.#map.cellAt(point(event)));
      held = null;
    });
    overlay.addEventListener("pointerleave", () => this.#hover(null));
    overlay.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.#zoom(Math.exp(-event.deltaY / 400), point(event));
    }, { passive: false });
  }

  #toggleTable() {
    this.#asTable = !this.#asTable;
    byId("show-table").setAttribute("aria-pressed", String(this.#asTable));
    byId("map").hidden = byId("legend").hidden = this.#asTable;
    byId("table").hidden = !this.#asTable;
    this.refresh();
  }

  #nextTheme() {
    const root = document.documentElement.dataset;
    const next = { undefined: "light", light: "dark", dark: undefined }[root.theme];
    if (next) root.theme = next;
    else delete root.theme;
    byId("theme").textContent = `Theme: ${next ?? "auto"}`;
    this.refresh();
  }
}

const page = new Page();
const frame = JSON.parse(byId("frame").textContent);
if (frame) page.show(frame);
else new Timeline((next) => page.show(next)).run();
