// Asks the server for frames while the page is live, and lets people go back to earlier ones.
import { moment } from "./model.js";
import { byId, clean } from "./dom.js";

const PAUSE = 2000; // milliseconds between two questions whether there is something new

// `show(frame)` is called with every frame that is to be seen.
export class Timeline {
  #show;
  #frames = [];
  #wanted = null; // the id of a frame that a person has chosen; null: the newest one
  #shown = null;

  constructor(show) {
    this.#show = show;
    byId("timeline").hidden = false;
    byId("moment").addEventListener("input", () => this.#choose(this.#frames[Number(byId("moment").value)]?.id ?? null));
    byId("live").addEventListener("click", () => this.#choose(null));
  }

  // Asks for ever; a server that is gone is told, and asked again.
  async run() {
    for (;;) {
      try {
        const told = await json("frames");
        this.#frames = told.frames;
        this.#problem(told.problem);
        await this.#update();
      } catch (error) {
        this.#problem(`no answer of topogate map (${error.message}); what is shown is old`);
      }
      await new Promise((done) => setTimeout(done, PAUSE));
    }
  }

  async #choose(id) {
    this.#wanted = id === this.#frames.at(-1)?.id ? null : id;
    await this.#update().catch((error) => this.#problem(error.message));
  }

  async #update() {
    if (!this.#frames.some((one) => one.id === this.#wanted)) this.#wanted = null;
    const at = this.#wanted === null ? this.#frames.length - 1 : this.#frames.findIndex((one) => one.id === this.#wanted);
    const live = this.#wanted === null;
    const slider = byId("moment");
    slider.max = String(Math.max(0, this.#frames.length - 1));
    slider.value = String(at);
    slider.disabled = this.#frames.length < 2;
    byId("live").setAttribute("aria-pressed", String(live));
    if (at < 0) return;
    const { id, takenAt } = this.#frames[at];
    byId("moment-text").textContent = slider.ariaValueText = live ? `live, ${takenAt}` : takenAt;
    if (id === this.#shown) return;
    const frame = await json(`frames/${id}`);
    const now = this.#wanted ?? this.#frames.at(-1).id;
    if (now !== id) return; // another one was chosen meanwhile
    this.#shown = id;
    this.#show(frame);
  }

  #problem(text) {
    byId("problem").hidden = !text;
    byId("problem").textContent = text ? clean(text) : "";
  }
}

async function json(path) {
  const answer = await fetch(path, { cache: "no-store" });
  if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
  return answer.json();
}
