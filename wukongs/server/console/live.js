/** The view of registered queries: the newest window as rows, all as a chart, what it waits for, its plan. */

import { chart, short, timeText } from "./chart.js";
import { button, every, h, renew, show, sieve } from "./dom.js";
import { makeEditor } from "./editor.js";
import { rowsTable } from "./rows.js";
import { ask, follow, json, named, text as textAt } from "./server.js";
import { numberOf, prefixesOf, termsOf, textOf } from "./terms.js";

const POINTS_MAX = 300;
const WINDOWS_MAX = 60;
const ROWS_MAX = 100_000;
const ROWS_OF_WINDOW_MAX = 5_000;
const LINES_MAX = 8;
const LOOK_MS = 2000;
const PAINT_MS = 100;

export function liveView(parent, { go, name }) {
  const list = h("ul", { class: "list" });
  const detail = h("section", { "aria-label": "Query" });
  let [shown, queries] = [null, null];
  const sieved = sieve("Filter queries", () => paint());
  const pick = (next) => {
    shown?.stop();
    shown = next === null ? null : watch(detail, next, () => go("live"));
    if (next === null) show(detail, h("p", { class: "note" }, "Pick a query to see its windows."));
  };
  const look = async () => {
    const found = await json("queries?brief").catch(() => null);
    if (found === null || !list.isConnected) return;
    if (shown === null && found.length > 0) return location.replace(`#live/${encodeURIComponent(found[0].name)}`); // so that Back leads out
    queries = found;
    paint();
  };
  const paint = () => {
    const { shown: few, note } = sieved.first(queries, (one) => one.name);
    const mine = queries.find((one) => one.name === name);
    const listed = mine && !few.includes(mine) ? [mine, ...few] : few;
    renew(list, listed.map((one) =>
      h("li", {}, h("a", { href: `#live/${encodeURIComponent(one.name)}`, "aria-current": one.name === name ? "page" : null }, one.name,
        one.is_paused ? " (paused)" : ""))), note && h("li", {}, note));
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
  const why = h("p", { class: "why" });
  const told = h("div");
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
    const marks = new Set(isCompared ? window.rows.flatMap((_, place) => (old.has(window.keys[place]) ? [] : [place])) : []);
    const gone = isCompared ? before.keys.filter((key) => !now.has(key)).length : 0;
    show(facts, h("strong", {}, `${timeText(window.start_ms)} – ${timeText(window.end_ms)}`), `: ${window.count} rows`,
      isWhole(window) ? "" : `, of which the first ${window.rows.length} are here`,
      isCompared ? `, ${marks.size} new, ${gone} gone` : "", `; ready ${short(window.latency_us)} µs after its end; snapshot ${window.snapshot}`,
      window.partial ? h("span", { class: "warning" }, " A part of its time was not kept any more.") : "");
    renew(rows, rowsTable(window.names, window.rows, prefixes, marks, sorted));
    show(drawn, chart(series(history, choice.value), choice.value));
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
      history.points.push({ end_ms, rows: all, latency_us, values: values(names, found, prefixes, history) });
      const rowsKept = () => history.windows.reduce((sum, one) => sum + one.rows.length, 0);
      while (history.windows.length > WINDOWS_MAX || (history.windows.length > 2 && rowsKept() > ROWS_MAX)) {
        history.windows.shift();
        slider.value -= 1; // the window that is looked at stays
      }
      if (history.points.length > POINTS_MAX) history.points.shift();
      slider.max = history.windows.length - 1;
      offer(choice, names, found);
      later();
    } else if (kind === "gap" || kind === "error") {
      show(problem, `Up to ${timeText(data.to_ms ?? data.end_ms)}: ${kind === "gap" ? "windows were lost" : "a window failed"}: ${data.detail ?? JSON.stringify(data)}`);
    } else if (kind === "end") {
      isOver = data.error === undefined || data.error.status === 404;
      show(problem, data.error ? data.error.message : "The query has ended.");
    }
  };
  const look = async () => {
    try {
      show(why, await textAt(named("queries", name, "/why")));
      const { text, is_paused: isPaused, stats, warnings } = await json(named("queries", name));
      prefixes = prefixesOf(text);
      if (isOver || stats.windows < count) begin(); // another query has the name by now, or it was registered again
      count = stats.windows;
      show(counts, `${short(stats.windows)} windows, ${short(stats.rows)} rows, ${short(stats.errors)} errors; execution median ${short(stats.execution_us_p50)} µs`,
        warnings.length ? h("span", { class: "warning" }, ` ${warnings.join("; ")}`) : "");
      pausing.textContent = isPaused ? "Resume" : "Pause";
    } catch (error) {
      show(why, error.message);
    }
  };
  const begin = () => {
    Object.assign(history, { windows: [], points: [] });
    [isOver, slider.value, slider.max] = [false, 0, 0];
    for (const one of [problem, choice, facts, rows, drawn]) show(one);
    following.abort();
    following = new AbortController();
    follow(name, ROWS_OF_WINDOW_MAX, onEvent, following.signal);
  };
  const doing = async (act) => {
    try {
      show(problem);
      await act();
      await look();
    } catch (error) {
      show(problem, error.message);
    }
  };
  const counts = h("p", { class: "facts" });
  const pausing = button("Pause", () =>
    doing(() => ask(named("queries", name, pausing.textContent === "Pause" ? "/pause" : "/resume"), { method: "POST" })), { "data-needs": "admin" });
  const plan = button("Plan with rows", () =>
    doing(async () => show(told, h("pre", { class: "plan", tabindex: 0 }, await textAt(named("queries", name, "/explain?analyze"))))));
  const edit = button("Edit", () =>
    doing(async () => {
      const place = h("div", { class: "editor" });
      const { text } = await json(named("queries", name));
      const replace = () =>
        ask(named("queries", name), { method: "PUT", body: editor.text(), type: "application/sparql-query" }).then(
          () => (show(told), look()),
          (error) => (show(problem, error.message), error.told?.line && editor.mark(error.told)),
        );
      show(told, place, h("div", { class: "buttons" }, button("Replace", replace, { class: "main" }), button("Cancel", () => show(told))));
      const editor = await makeEditor(place, { text, label: `Text of ${name}`, run: replace, known: () => ({ predicates: [], streams: [] }) });
      editor.focus();
    }), { "data-needs": "admin" });
  const close = button("Close", () => {
    if (confirm(`Close query ${name}? Nobody gets windows of it any more.`)) {
      doing(async () => (await ask(named("queries", name), { method: "DELETE" }), leave()));
    }
  }, { class: "danger", "data-needs": "admin" });

  show(parent, h("h3", {}, name), counts, why, h("div", { class: "buttons" }, pausing, plan, edit, close), told, problem, facts,
    h("div", { class: "timeline" }, h("label", {}, newest, " newest"), slider), rows,
    h("label", { class: "choice" }, "Chart of ", choice), drawn);
  every(why, LOOK_MS, look);
  begin();
  document.addEventListener("visibilitychange", later);
  return { stop: () => (following.abort(), document.removeEventListener("visibilitychange", later)) };
}

/**
 * Return the numbers of a window: by column, pairs of what the rest of the row says and the value. The lines that the
 * points have go on; others begin while there are fewer than LINES_MAX.
 */
function values(names, rows, prefixes, { points }) {
  const keysOf = (name) => new Set(points.flatMap((one) => (one.values.get(name) ?? []).map(([key]) => key)));
  const found = new Map();
  const followed = new Map(names.map((name) => [name, keysOf(name)]));
  for (const row of rows) {
    row.forEach((term, at) => {
      const value = numberOf(term);
      if (value === null || !Number.isFinite(value)) return;
      const key = row.filter((other, place) => place !== at && numberOf(other) === null).map((other) => textOf(other, prefixes)).join(" ");
      const keys = followed.get(names[at]);
      if (keys.size < LINES_MAX) keys.add(key);
      if (!keys.has(key)) return;
      if (!found.has(names[at])) found.set(names[at], []);
      if (found.get(names[at]).length < LINES_MAX) found.get(names[at]).push([key, value]);
    });
  }
  return found;
}

function offer(choice, names, rows) {
  const numbers = names.filter((_, at) => rows.some((row) => numberOf(row[at]) !== null));
  const known = [...choice.options].map((option) => option.value);
  for (const one of ["rows", "latency in µs", ...numbers]) {
    if (!known.includes(one)) choice.append(h("option", { value: one }, one));
  }
}

function series({ points }, what) {
  if (what === "rows") return new Map([["rows", points.map(({ end_ms, rows }) => [end_ms, rows])]]);
  if (what === "latency in µs") return new Map([["latency", points.map(({ end_ms, latency_us }) => [end_ms, latency_us])]]);
  const lines = new Map();
  for (const { end_ms, values } of points) {
    for (const [key, value] of values.get(what) ?? []) {
      if (!lines.has(key) && lines.size >= LINES_MAX) continue;
      if (!lines.has(key)) lines.set(key, []);
      lines.get(key).push([end_ms, value]);
    }
  }
  return lines;
}
