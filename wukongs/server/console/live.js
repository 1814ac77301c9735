/** The view of registered queries: the newest window as rows, all as a chart; a live view by its changes. */

import { watchChanges } from "./changes.js";
import { chart, short, timeText } from "./chart.js";
import { controls } from "./controls.js";
import { every, h, renew, show, sieve } from "./dom.js";
import { rowsTable } from "./rows.js";
import { POINTS_MAX, offer, series, values } from "./series.js";
import { follow, json, named } from "./server.js";
import { prefixesOf, termsOf } from "./terms.js";

const WINDOWS_MAX = 60;
const ROWS_MAX = 100_000;
const ROWS_OF_WINDOW_MAX = 5_000;
const LOOK_MS = 2000;
const PAINT_MS = 100;

export function liveView(parent, { go, name }) {
  const list = h("ul", { class: "list" });
  const detail = h("section", { "aria-label": "Query" });
  let [shown, queries] = [null, null];
  const sieved = sieve("Filter queries", () => paint());
  const pick = (next) => {
    shown?.stop();
    shown = null;
    if (next === null) show(detail, h("p", { class: "note" }, "Pick a query to see its windows, or the changes of a live view."));
  };
  const look = async () => {
    const found = await json("queries?brief").catch(() => null);
    if (found === null || !list.isConnected) return;
    if (!name && found.length > 0) return location.replace(`#live/${encodeURIComponent(found[0].name)}`); // so that Back leads out
    queries = found;
    paint();
    const mine = queries.find((one) => one.name === name);
    if (mine && shown === null) shown = (mine.is_view ? watchChanges : watch)(detail, name, () => go("live"));
    else if (!mine && shown === null && name) show(detail, h("p", { class: "note" }, `There is no query named ${name}.`));
  };
  const paint = () => {
    const { shown: few, note } = sieved.first(queries, (one) => one.name);
    const mine = queries.find((one) => one.name === name);
    const listed = mine && !few.includes(mine) ? [mine, ...few] : few;
    renew(list, listed.map((one) =>
      h("li", {}, h("a", { href: `#live/${encodeURIComponent(one.name)}`, "aria-current": one.name === name ? "page" : null }, one.name,
        one.is_view ? " (view)" : "", one.is_paused ? " (paused)" : ""))), note && h("li", {}, note));
    if (queries.length === 0) show(list, h("li", { class: "note" }, "No query is registered. Write one that begins with REGISTER QUERY in the ", h("a", { href: "#query" }, "editor"), "."));
  };
  show(parent, h("h2", { class: "hidden" }, "Live"), h("div", { class: "split" }, h("nav", { "aria-label": "Registered queries" }, sieved.element, list), detail));
  pick(name ?? null);
  every(list, LOOK_MS, look);
  return () => pick(null);
}

/** Show one query; return what ends it. */
function watch(parent, name, leave) {
  let following = new AbortController();
  const history = { windows: [], points: [] };
  let [isOver, count] = [false, 0]; // of its windows, as they were counted when somebody looked
  const sorted = { by: null, down: false };
  const facts = h("p", { class: "facts" });
  const problem = h("p", { class: "status error", role: "alert" });
  const rows = h("div");
  const drawn = h("div");
  const choice = h("select", { "aria-label": "Drawn value", onchange: () => paint() });
  const slider = h("input", { type: "range", min: 0, max: 0, value: 0, "aria-label": "Window", oninput: () => ((newest.checked = slider.value === slider.max), paint()) });
  const newest = h("input", { type: "checkbox", checked: true, onchange: () => paint() });
  let prefixes = {};
  let waiting = null;

  const paint = () => {
    waiting = null;
    if (document.hidden) return;
    if (newest.checked) slider.value = slider.max;
    const at = Number(slider.value);
    const window = history.windows[at];
    if (!window) return;
    const before = history.windows[at - 1];
    const [old, now] = [new Set(before?.keys), new Set(window.keys)];
    const isWhole = (one) => one.count === one.rows.length;
    const isCompared = before && isWhole(before) && isWhole(window);
    const marks = new Map(isCompared ? window.rows.flatMap((_, place) => (old.has(window.keys[place]) ? [] : [[place, "new"]])) : []);
    const gone = isCompared ? before.keys.filter((key) => !now.has(key)).length : 0;
    show(facts, h("strong", {}, `${timeText(window.start_ms)} – ${timeText(window.end_ms)}`), `: ${window.count} rows`,
      isWhole(window) ? "" : `, of which the first ${window.rows.length} are here`,
      isCompared ? `, ${marks.size} new, ${gone} gone` : "", `; ready ${short(window.latency_us)} µs after its end; snapshot ${window.snapshot}`,
      window.partial ? h("span", { class: "warning" }, " A part of its time was not kept any more.") : "");
    renew(rows, rowsTable(window.names, window.rows, prefixes, marks, sorted));
    show(drawn, chart(series(history.points, choice.value), `${choice.value} by the end of the window`));
  };
  const later = () => {
    waiting ??= setTimeout(paint, PAINT_MS);
  };
  const onEvent = (kind, data) => {
    if (kind === "window") {
      const isGraph = data.triples !== undefined;
      const isAnswer = data.boolean !== undefined;
      const names = isGraph ? ["subject", "predicate", "object"] : isAnswer ? ["answer"] : data.head.vars;
      const found = isGraph
        ? data.triples.map((triple) => triple.map((term) => termsOf(term)[0]))
        : isAnswer ? [[{ type: "literal", value: `${data.boolean}` }]]
        : data.results.bindings.map((row) => data.head.vars.map((one) => row[one] ?? null));
      const keys = found.map((row) => JSON.stringify(row));
      const all = data.row_count ?? found.length;
      const { start_ms, end_ms, latency_us, snapshot, partial } = data;
      history.windows.push({ start_ms, end_ms, latency_us, snapshot, partial, names, rows: found, keys, count: all });
      history.points.push({ time: end_ms, counts: { rows: all, "latency in µs": latency_us }, values: values(names, found, prefixes, history.points) });
      const rowsKept = () => history.windows.reduce((sum, one) => sum + one.rows.length, 0);
      while (history.windows.length > WINDOWS_MAX || (history.windows.length > 2 && rowsKept() > ROWS_MAX)) {
        history.windows.shift();
        slider.value -= 1; // the window that is looked at stays
      }
      if (history.points.length > POINTS_MAX) history.points.shift();
      slider.max = history.windows.length - 1;
      offer(choice, ["rows", "latency in µs"], names, found);
      later();
    } else if (kind === "gap" || kind === "error") {
      show(problem, `Up to ${timeText(data.to_ms ?? data.end_ms)}: ${kind === "gap" ? "windows were lost" : "a window failed"}: ${data.detail ?? JSON.stringify(data)}`);
    } else if (kind === "end") {
      isOver = data.error === undefined || data.error.status === 404;
      show(problem, data.error ? data.error.message : "The query has ended.");
    }
  };
  const describe = ({ text, stats }) => {
    prefixes = prefixesOf(text);
    if (isOver || stats.windows < count) begin(); // another query has the name by now, or it was registered again
    count = stats.windows;
    return `${short(stats.windows)} windows, ${short(stats.rows)} rows, ${short(stats.errors)} errors; execution median ${short(stats.execution_us_p50)} µs`;
  };
  const begin = () => {
    Object.assign(history, { windows: [], points: [] });
    [isOver, slider.value, slider.max] = [false, 0, 0];
    for (const one of [problem, choice, facts, rows, drawn]) show(one);
    following.abort();
    following = new AbortController();
    follow(named("queries", name, `/windows?rows_max=${ROWS_OF_WINDOW_MAX}`), onEvent, following.signal);
  };
  show(parent, h("h3", {}, name), controls({ name, problem, leave, describe }), problem, facts,
    h("div", { class: "timeline" }, h("label", {}, newest, " newest"), slider), rows,
    h("label", { class: "choice" }, "Chart of ", choice), drawn);
  begin();
  document.addEventListener("visibilitychange", later);
  return { stop: () => (following.abort(), document.removeEventListener("visibilitychange", later)) };
}
