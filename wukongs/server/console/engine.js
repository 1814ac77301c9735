/** The view of the engine: its store, its snapshots and who holds them, its disk, and the nodes of a cluster. */

import { bytesText, short, timeText } from "./chart.js";
import { every, h, renew, show, sieve, table } from "./dom.js";
import { json } from "./server.js";

const LOOK_MS = 1000;

export function engineView(parent) {
  const [facts, running, rest] = [h("div"), h("div"), h("div")];
  let stats = null;
  const names = sieve("Filter queries", () => renew(running, ...queries(stats, names)));
  const look = async () => {
    const found = await json("stats").catch(() => null);
    if (found === null) return;
    stats = found;
    renew(facts, tiles(stats));
    renew(running, ...queries(stats, names));
    renew(rest, ...others(stats));
  };
  show(parent, h("h2", {}, "Engine"), facts, h("h3", {}, "Queries"), names.element, running, rest);
  every(facts, LOOK_MS, look);
}

function tiles(stats) {
  const one = stats.process ?? {};
  const facts = [
    ["snapshot", `${stats.sn}`],
  ];
  if (stats.updates) facts.push( // a token with some graphs is not told of all of them
    ["stored triples", short(stats.stored_triples)],
    ["memory of the store", bytesText(stats.stored_bytes)],
    ["sorted batches", short(stats.stored_batches)],
    ["terms", short(stats.terms)],
    ["memory of terms", bytesText(stats.term_bytes)],
    ["stored up to", timeText(stats.sealed_ms)],
    ["updates", short(stats.updates.requests)],
    ["prepared queries", short(stats.prepared_queries.kept)],
    ["memory of the process", bytesText(one.memory_bytes ?? 0)],
    ["processor time", `${short(Math.round(one.cpu_s ?? 0))} s`],
    ["threads", short(one.threads ?? 0)],
  );
  return h("dl", { class: "tiles" }, ...facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

function others(stats) {
  const found = stats.handles ? [h("h3", {}, "Who reads older snapshots"), handles(stats)] : [];
  if (stats.nodes) found.push(h("h3", {}, "Nodes"), nodes(stats));
  const durability = Object.entries(stats.durability ?? {});
  if (durability.length) found.push(h("h3", {}, "Data folder"), folders(stats.durability));
  return found;
}

function queries(stats, sieved) {
  const all = Object.entries(stats.queries);
  if (all.length === 0) return [h("p", { class: "note" }, "None is registered.")];
  const { shown, note } = sieved.first(all, ([name]) => name);
  const rows = shown.map(([name, one]) => [
    h("a", { href: `#live/${encodeURIComponent(name)}` }, name), short(one.windows), short(one.rows), short(one.execution_us_p50), short(one.execution_us_p99),
    short(one.latency_us_p50), short(one.errors), short(one.results_waiting),
  ]);
  const names = ["query", "windows", "rows", "execution µs, median", "99 %", "latency µs, median", "errors", "unread"];
  return [table("Queries", names, rows, [1, 2, 3, 4, 5, 6, 7]), note];
}

function handles({ handles }) {
  if (handles.length === 0) return h("p", { class: "note" }, "Nobody: what is overwritten is forgotten at once.");
  const names = [...new Set(handles.flatMap((one) => Object.keys(one)))];
  return table("Handles", names.map(words), handles.map((one) => names.map((name) => (name === "age_s" ? short(one[name]) : `${one[name] ?? ""}`))));
}

/** Show what is known of the data folder, or of one for each node. */
function folders(durability) {
  const isOfNodes = Object.values(durability).every((one) => one !== null && typeof one === "object");
  const columns = isOfNodes ? Object.keys(durability) : [""];
  const of = (column) => (isOfNodes ? durability[column] : durability);
  const names = [...new Set(columns.flatMap((column) => Object.keys(of(column))))];
  const rows = names.map((name) => [words(name), ...columns.map((column) => value(name, of(column)[name]))]);
  return table("Data folder", ["", ...columns.map((column) => (column ? `node ${column}` : ""))], rows, columns.map((_, at) => at + 1));
}

function words(name) {
  return name.replace(/_(s|ms|us)$/, " in $1").replaceAll("_", " ");
}

function value(name, told) {
  if (typeof told !== "number") return told == null ? "–" : `${typeof told === "object" ? JSON.stringify(told) : told}`;
  return /bytes/.test(name) ? bytesText(told) : short(told);
}

function nodes({ nodes, members }) {
  const rows = Object.entries(nodes).map(([number, one]) => [
    number, members?.[number] ?? "", `${one.sn}`, short(one.stored_triples), bytesText(one.stored_bytes), bytesText(one.slice_bytes), short(one.queries),
    bytesText(one.memory_bytes ?? 0),
  ]);
  for (const [number, state] of Object.entries(members ?? {})) if (!(number in nodes)) rows.push([number, h("span", { class: "warning" }, state), "", "", "", "", "", ""]);
  return table("Nodes", ["node", "state", "snapshot", "triples", "of the store", "of windows", "queries", "memory"], rows, [2, 3, 4, 5, 6, 7]);
}
