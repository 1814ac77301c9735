/** The view of registered queries: the newest window as rows, all as a chart, what it waits for, its plan. */

import { chart, short, timeText } from "./chart.js";
import { button, every, h, show } from "./dom.js";
import { makeEditor } from "./editor.js";
import { rowsTable } from "./rows.js";
import { ask, follow, json, named, text as textAt } from "./server.js";
import { numberOf, prefixesOf, termsOf, textOf } from "./terms.js";

const POINTS_MAX = 300;
const WINDOWS_MAX = 60;
const LINES_MAX = 8;
const LOOK_MS = 2000;
const PAINT_MS = 100;

export function liveView(parent, { go, name }) {
  const list = h("ul", { class: "list" });
  const detail = h("section", { "aria-label": "Query" });
  let shown = null;
  const pick = (next) => {
    shown?.stop();
    shown = next === null ? null : watch(detail, next, () => go("live"));
    if (next === null) show(detail, h("p", { class: "note" }, "Pick a query to see its windows."));
  };
  const look = async () => {
    const found = await json("queries").catch(() => null);
    if (found === null || !list.isConnected) return;
    if (shown === null && found.length > 0) return go("live", found[0].name);
    show(list, found.map((one) =>
      h("li", {}, h("a", { href: `#live/${encodeURIComponent(one.name)}`, "aria-current": one.name === name ? "page" : null }, one.name,
        one.is_paused ? " (paused)" : ""))));
    if (found.length === 0) show(list, h("li", { class: "note" }, "No query is registered. Write one that begins with REGISTER QUERY in the ", h("a", { href: "#query" }, "editor"), "."));
  };
  show(parent, h("h2", { class: "hidden" }, "Live"), h("div", { class: "split" }, h("nav", { "aria-label": "Registered queries" }, list), detail));
  pick(name ?? null);
  every(list, LOOK_MS, look);
  return () => pick(null);
}

/** Show one query; return what ends it. */
function watch(parent, name, leave) {
  const following = new AbortController();
  const history = { windows: [], points: [], names: [] };
  const facts = h("p", { class: "facts", role: "status" });
  const problem = h("p", { class: "status error" });
  const rows = h("div");
  const drawn = h("div");
  const choice = h("select", { "aria-label": "Drawn value", onchange: () => paint() });
  const slider = h("input", { type: "range", min: 0, max: 0, value: 0, "aria-label": "Window", oninput: () => paint() });
  const newest = h("input", { type: "checkbox", checked: true, onchange: () => paint() });
  const why = h("p", { class: "why" });
  const told = h("div");
  let prefixes = {};
  let isGraph = false;
  let waiting = null;

  const paint = () => {
    waiting = null;
    if (newest.checked) slider.value = slider.max;
    const at = Number(slider.value);
    const window = history.windows[at];
    if (!window) return;
    const before = history.windows[at - 1];
    const old = new Set(before?.keys ?? []);
    const marks = new Set(before ? window.rows.flatMap((_, place) => (old.has(window.keys[place]) ? [] : [place])) : []);
    const gone = before ? before.keys.filter((key) => !new Set(window.keys).has(key)).length : 0;
    show(facts, h("strong", {}, `${timeText(window.start_ms)} – ${timeText(window.end_ms)}`), `: ${window.rows.length} rows`,
      before ? `, ${marks.size} new, ${gone} gone` : "", `; ready ${short(window.latency_us)} µs after its end; snapshot ${window.snapshot}`,
      window.partial ? h("span", { class: "warning" }, " A part of its time was not kept any more.") : "");
    show(rows, rowsTable(history.names, window.rows, prefixes, marks));
    show(drawn, chart(series(history, choice.value), choice.value));
  };
  const later = () => {
    waiting ??= setTimeout(paint, PAINT_MS);
  };
  const onEvent = (kind, data) => {
    show(problem);
    if (kind === "window") {
      isGraph = data.triples !== undefined;
      history.names = isGraph ? ["subject", "predicate", "object"] : data.head.vars;
      const found = isGraph
        ? data.triples.map((triple) => triple.map((term) => termsOf(term)[0]))
        : data.results.bindings.map((row) => data.head.vars.map((one) => row[one] ?? null));
      const keys = found.map((row) => JSON.stringify(row));
      history.windows.push({ ...data, rows: found, keys });
      history.points.push({ end_ms: data.end_ms, rows: found.length, latency_us: data.latency_us, values: values(found, prefixes) });
      if (history.windows.length > WINDOWS_MAX) history.windows.shift();
      if (history.points.length > POINTS_MAX) history.points.shift();
      slider.max = history.windows.length - 1;
      offer(choice, history, found);
      later();
    } else if (kind === "gap" || kind === "error") {
      show(problem, `${kind === "gap" ? "Windows were lost" : "A window failed"}: ${data.detail ?? JSON.stringify(data)}`);
    } else if (kind === "end") {
      show(problem, data.error ? data.error.message : "The query has ended.");
    }
  };
  const look = async () => {
    try {
      show(why, await textAt(named("queries", name, "/why")));
      const { text, is_paused: isPaused, stats, warnings } = await json(named("queries", name));
      prefixes = prefixesOf(text);
      show(counts, `${short(stats.windows)} windows, ${short(stats.rows)} rows, ${short(stats.errors)} errors; execution median ${short(stats.execution_us_p50)} µs`,
        warnings.length ? h("span", { class: "warning" }, ` ${warnings.join("; ")}`) : "");
      pausing.textContent = isPaused ? "Resume" : "Pause";
    } catch (error) {
      show(why, error.message);
    }
  };
  const doing = async (act) => {
    try {
      await act();
      await look();
    } catch (error) {
      show(problem, error.message);
    }
  };
  const counts = h("p", { class: "facts" });
  const pausing = button("Pause", () =>
    doing(() => ask(named("queries", name, pausing.textContent === "Pause" ? "/pause" : "/resume"), { method: "POST" })));
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
    }));
  const close = button("Close", () => {
    if (confirm(`Close query ${name}? Nobody gets windows of it any more.`)) {
      doing(async () => (await ask(named("queries", name), { method: "DELETE" }), leave()));
    }
  }, { class: "danger" });

  show(parent, h("h3", {}, name), counts, why, h("div", { class: "buttons" }, pausing, plan, edit, close), told, problem, facts,
    h("div", { class: "timeline" }, h("label", {}, newest, " newest"), slider), rows,
    h("label", { class: "choice" }, "Chart of ", choice), drawn);
  look().then(() => follow(name, onEvent, following.signal));
  every(why, LOOK_MS, look);
  return { stop: () => following.abort() };
}

/** Return the numbers of a window: by column, pairs of what the rest of the row says and the value. */
function values(rows, prefixes) {
  const found = new Map();
  for (const row of rows) {
    row.forEach((term, at) => {
      const value = numberOf(term);
      if (value === null) return;
      const key = row.filter((other, place) => place !== at && numberOf(other) === null).map((other) => textOf(other, prefixes)).join(" ");
      if (!found.has(at)) found.set(at, []);
      if (found.get(at).length < LINES_MAX) found.get(at).push([key, value]);
    });
  }
  return found;
}

function offer(choice, { names }, rows) {
  const numbers = names.filter((_, at) => rows.some((row) => numberOf(row[at]) !== null));
  const known = [...choice.options].map((option) => option.value);
  for (const one of ["rows", "latency in µs", ...numbers]) {
    if (!known.includes(one)) choice.append(h("option", { value: one }, one));
  }
}

function series({ points, names }, what) {
  if (what === "rows") return new Map([["rows", points.map(({ end_ms, rows }) => [end_ms, rows])]]);
  if (what === "latency in µs") return new Map([["latency", points.map(({ end_ms, latency_us }) => [end_ms, latency_us])]]);
  const at = names.indexOf(what);
  const lines = new Map();
  for (const { end_ms, values } of points) {
    for (const [key, value] of values.get(at) ?? []) {
      if (!lines.has(key) && lines.size >= LINES_MAX) continue;
      if (!lines.has(key)) lines.set(key, []);
      lines.get(key).push([end_ms, value]);
    }
  }
  return lines;
}
