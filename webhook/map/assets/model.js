// What the page shows, read from a frame (webhook/map/model.py): hosts with the parts of their GPUs, gangs by id.

export function gangId(namespace, workload, group) {
  return `${namespace}/${workload}${group === null ? "" : `[${group}]`}`;
}

// The name of a gang in the lists, of one moment as of the next.
export function idOf(gang) {
  return gangId(gang.namespace, `${gang.kind.toLowerCase()}/${gang.name}`, gang.group);
}

export function readFrame(frame) {
  const gangs = new Map(frame.gangs.map((gang) => [idOf(gang), gang]));
  const explained = new Map(frame.explained.map((one) => [idOf(one), one]));
  const hostsOf = new Map();
  const topologies = frame.topologies.map((topology) => {
    const hosts = topology.nodes.map((node, index) => readHost(node, index));
    for (const host of hosts) {
      for (const id of host.gangs.keys()) {
        if (!hostsOf.has(id)) hostsOf.set(id, []);
        hostsOf.get(id).push(host.name);
      }
    }
    return { ...topology, hosts, byName: new Map(hosts.map((host) => [host.name, host])) };
  });
  return { ...frame, topologies, gangs, explained, hostsOf };
}

function readHost(node, index) {
  const gangs = new Map(node.gangs.map((one) => [gangId(one.namespace, one.workload, one.group), one]));
  const parts = node.gpus.total > 0 ? gpuParts(node, gangs) : wholeHost(node, gangs);
  return { ...node, index, gangs, parts, total: parts.reduce((sum, part) => sum + part.count, 0), sought: node.name.toLowerCase() };
}

// The GPUs of a host as runs of one state, in a fixed order: {state, gang, count}.
function gpuParts(node, gangs) {
  const known = node.gpus.used !== null;
  const parts = [];
  let held = known ? node.gpus.used + node.gpus.reserved : node.gpus.total;
  for (const [gang, one] of gangs) {
    const count = Math.min(one.gpus, held);
    const coming = Math.min(count, Math.round((count * one.reserved) / Math.max(1, one.pods + one.reserved)));
    parts.push({ state: "gang", gang, count: count - coming }, { state: "reserved", gang, count: coming });
    held -= count;
  }
  parts.push({ state: known ? "other" : "unknown", gang: null, count: held });
  if (known) {
    parts.push({ state: "kept", gang: null, count: node.gpus.kept });
    parts.push({ state: "out", gang: null, count: node.gpus.out });
    parts.push({ state: "free", gang: null, count: node.gpus.free });
  }
  return parts.filter((part) => part.count > 0);
}

// A host without GPUs is one part: of its first gang, else in the state that it is in.
function wholeHost(node, gangs) {
  const [gang] = gangs.keys();
  if (gang !== undefined) return [{ state: gangs.get(gang).pods ? "gang" : "reserved", gang, count: 1 }];
  if (node.keptFor !== null) return [{ state: "kept", gang: null, count: 1 }];
  if (node.out !== null) return [{ state: "out", gang: null, count: 1 }];
  return [{ state: node.otherPods ? "other" : "free", gang: null, count: 1 }];
}

// The gangs and hosts that a text finds: in names of gangs, their pods and hosts.
export function find(view, topology, text) {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return null;
  view.sought ??= new Map([...view.gangs.keys()].map((id) => [id, [id, ...(view.explained.get(id)?.pods ?? []).map((pod) => pod.pod ?? "")].join("\n").toLowerCase()]));
  const gangs = new Set();
  for (const [id, names] of view.sought) if (names.includes(wanted)) gangs.add(id);
  const hosts = new Set();
  for (const host of topology.hosts) if (host.sought.includes(wanted)) hosts.add(host.name);
  return { gangs, hosts };
}

export function plural(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

// A time of the server, RFC 3339 in UTC, without its seconds.
export function moment(stamp) {
  return stamp.replace("T", " ").replace(/:\d\dZ$/, " UTC");
}

export function span(seconds) {
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}
