// The map as tables, for readers of text: domains, hosts, gangs.
import { byId, paged } from "./dom.js";
import { plural } from "./model.js";

const AT_ONCE = 500;
const known = (value) => value ?? "?";

export function showTables({ view, topology }) {
  const domains = topology.domains.map((one) => [
    one.level, one.path.join("/"), one.hosts, known(one.gpus.total), known(one.gpus.used), known(one.gpus.reserved), known(one.gpus.kept), known(one.gpus.out), known(one.gpus.free), known(one.largestGang),
    [...Object.entries(one.out).map(([why, count]) => `${count} ${why}`), ...one.keptFor.map((name) => `kept for ${name}`)].join(", "),
  ]);
  const hosts = topology.hosts.map((one) => [
    [...one.domain, one.name].join("/"), one.gpus.total, known(one.gpus.used), known(one.gpus.reserved), known(one.gpus.free),
    [...one.gangs].map(([id, mine]) => `${id} (${plural(mine.pods, "pod")}${mine.reserved ? `, ${mine.reserved} to come` : ""})`).join(", "),
    [one.out, one.keptFor && `kept for ${one.keptFor}`].filter(Boolean).join(", "),
  ]);
  const gangs = [...view.gangs].map(([id, one]) => [id, one.phase, `${one.pods.bound}/${one.pods.wanted}`, one.gpus, one.place, one.position === null ? "" : `${one.position} of ${one.queued}`, one.reason ? `${one.reason}: ${one.message}` : ""]);
  byId("table").replaceChildren(
    ...paged("Gangs", [["Gang"], ["Phase"], ["Pods", true], ["GPUs", true], ["Place"], ["Queue"], ["Reason"]], gangs, AT_ONCE),
    ...paged("Domains", [["Level"], ["Domain"], ["Hosts", true], ["GPUs", true], ["Used", true], ["Reserved", true], ["Kept", true], ["Out", true], ["Free", true], ["Largest gang", true], ["Out of use, kept"]], domains, AT_ONCE),
    ...paged("Hosts", [["Host"], ["GPUs", true], ["Used", true], ["Reserved", true], ["Free", true], ["Gangs"], ["Out of use, kept"]], hosts, AT_ONCE),
  );
}
