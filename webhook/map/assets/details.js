// The selected gang: where its pods are, or why it waits and what is in the way.
import { moment, plural, span } from "./model.js";
import { element, facts, paged, tableOf } from "./dom.js";

const PODS_AT_ONCE = 100; // rows
const place = (path) => (path.length ? path.join("/") : "the whole topology");

export function detailsOf(view, id) {
  const gang = view.gangs.get(id);
  const told = view.explained.get(id);
  const parts = [element("p", { text: told?.message || gang.message || gang.reason || gang.phase })];
  parts.push(facts([
    ["Phase", gang.reason ? `${gang.phase}: ${gang.reason}` : gang.phase],
    ["Pods", `${gang.pods.bound} of ${gang.pods.wanted} bound, ${plural(gang.gpus, "GPU")}`],
    ["Place", gang.place],
    ["Level", [gang.level && `requires ${gang.level}`, gang.prefer && `prefers ${gang.prefer}`].filter(Boolean).join(", ")],
    ["Queue", gang.position === null ? "" : `${gang.position} of ${gang.queued}`],
    ["Waiting", gang.waitingSeconds === null ? "" : span(gang.waitingSeconds)],
    ["Start", gang.start === null || gang.fitsNow ? "" : gang.start.by === null ? "unknown" : `by ${moment(gang.start.by)}`],
    ["Kept for it", gang.keptHosts.length ? gang.keptHosts.join(", ") : ""],
    ["Priority", gang.priority || ""],
  ]));
  if (told?.levels.length) parts.push(...waits(told));
  const pods = told?.pods ?? [];
  if (pods.length) parts.push(...podTable(pods));
  else if (gang.hosts.length) parts.push(...hostTable(view, id, gang));
  else if (!told) parts.push(element("p", { className: "quiet", text: `Explained here are the first ${view.explained.size} gangs; this one: topogate explain ${gang.kind.toLowerCase()}/${gang.name} -n ${gang.namespace}` }));
  return parts;
}

function waits(told) {
  const levels = told.levels.map((one) => [
    `${one.level ?? "anywhere"}${one.required ? " (required)" : ""}`,
    one.needed,
    element("span", { text: one.have, className: one.have < one.needed ? "short" : "enough" }),
    one.best.length ? `${place(one.best[0].path)} (${one.best[0].pods})` : one.level === null ? "" : "none",
  ]);
  const parts = [element("h3", { text: "Pods that fit into one domain now" }), tableOf([["Level"], ["Needed", true], ["Have", true], ["Best"]], levels)];
  if (told.inTheWay.length) {
    parts.push(element("h3", { text: `In the way in ${place(told.near ?? [])}` }));
    const rows = told.inTheWay.map((one) => [one.name, one.hosts.join(", "), one.ends === null ? "unknown" : moment(one.ends)]);
    parts.push(element("div", { className: "scroll", tabindex: "0", role: "region", "aria-label": "In the way" }, [tableOf([["What"], ["Hosts"], ["Ends by"]], rows)]));
  }
  if (told.ahead.length) {
    parts.push(element("h3", { text: `${plural(told.aheadCount ?? told.ahead.length, "gang")} first` }));
    parts.push(element("ul", {}, told.ahead.map((one) => element("li", { text: `${one.name}: ${one.why}` }))));
  }
  if (told.waysOut.length) {
    parts.push(element("h3", { text: "What would help" }));
    parts.push(element("ul", {}, told.waysOut.map((one) => element("li", { text: `${one.text}: ${one.result}` }))));
  }
  return parts;
}

function podTable(pods) {
  const several = new Set(pods.map((pod) => pod.podSet)).size > 1;
  const rows = pods.map((pod) => [
    ...(several ? [pod.podSet] : []),
    pod.rank ?? "",
    pod.pod ?? (pod.state === "completed" ? "-" : "to come"),
    [...pod.domain, pod.host ?? "no host"].join("/"),
    element("span", { text: pod.why ? `${pod.state}: ${pod.why}` : pod.state, className: ["ready", "completed"].includes(pod.state) ? "enough" : "short" }),
  ]);
  const columns = [...(several ? [["Pod set"]] : []), ["Rank", true], ["Pod"], ["Place"], ["State"]];
  return [element("div", { className: "scroll", tabindex: "0", role: "region", "aria-label": "Pods" }, paged("Pods", columns, rows, PODS_AT_ONCE))];
}

function hostTable(view, id, gang) {
  const byName = new Map(view.topologies.flatMap((topology) => topology.hosts.map((host) => [host.name, host])));
  const rows = gang.hosts.map((name) => {
    const host = byName.get(name);
    const mine = host?.gangs.get(id);
    return [[...(host?.domain ?? []), name].join("/"), mine?.pods ?? 0, mine?.reserved ?? 0];
  });
  return [element("div", { className: "scroll", tabindex: "0", role: "region", "aria-label": "Hosts" }, paged("Hosts", [["Host"], ["Pods", true], ["To come", true]], rows, PODS_AT_ONCE))];
}
