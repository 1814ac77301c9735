/** A live view: its content as a table whose rows appear and fade, and how it changes as a chart. */

import { chart, short } from "./chart.js";
import { controls } from "./controls.js";
import { h, renew, show } from "./dom.js";
import { rowsTable } from "./rows.js";
import { POINTS_MAX, offer, series, values } from "./series.js";
import { follow, named } from "./server.js";
import { prefixesOf, termsOf } from "./terms.js";

const ROWS_MAX = 5_000;
const PAINT_MS = 100;
const FADE_MS = 2000; // as in style.css
const TIMES = "times";
const COUNTS = ["rows", "inserted", "deleted"];

/** Show one view; return what ends it. */
export function watchChanges(parent, name, leave) {
  let following = new AbortController();
  const content = new Map(); // key of a row -> { row, weight, since: when it was inserted or deleted (null: with a reset) }
  const points = [];
  let [names, prefixes, place, isOver, isPartial] = [[], {}, "", false, false];
  const sorted = { by: null, down: false };
  const facts = h("p", { class: "facts" });
  const problem = h("p", { class: "status error", role: "alert" });
  const rows = h("div");
  const drawn = h("div");
  const choice = h("select", { "aria-label": "Drawn value", onchange: () => later() });
  let waiting = null;

  const paint = () => {
    waiting = null;
    if (document.hidden) return;
    const now = performance.now();
    for (const [key, one] of content) if (one.weight <= 0 && now - one.since > FADE_MS) content.delete(key);
    const shown = [...content.values()];
    const [marks, ages] = [new Map(), new Map()];
    shown.forEach(({ weight, since }, at) => {
      if (since === null || now - since > FADE_MS) return;
      marks.set(at, weight > 0 ? "new fading" : "gone");
      ages.set(at, now - since);
    });
    const isMultiset = shown.some(({ weight }) => weight > 1);
    const columns = isMultiset ? [...names, TIMES] : names;
    const cells = shown.map(({ row, weight }) => (isMultiset ? [...row, { type: "literal", value: `${Math.max(weight, 0)}`, datatype: "http://www.w3.org/2001/XMLSchema#integer" }] : row));
    show(facts, h("strong", {}, `${size()} rows`), ` at ${place}`, isPartial ? h("span", { class: "warning" }, ` There are more: the first ${ROWS_MAX} of a report are shown here.`) : "");
    renew(rows, rowsTable(columns, cells, prefixes, marks, sorted, ages));
    show(drawn, chart(series(points, choice.value), `${choice.value} by time`));
    if (marks.size > 0) later(FADE_MS / 4);
  };
  const later = (ms = PAINT_MS) => {
    waiting ??= setTimeout(paint, ms);
  };
  const size = () => [...content.values()].reduce((sum, { weight }) => sum + Math.max(weight, 0), 0);
  const take = (data, isReset) => {
    const now = performance.now();
    const isGraph = data.head === undefined && data.boolean === undefined;
    names = isGraph ? ["subject", "predicate", "object"] : data.boolean !== undefined ? ["answer"] : data.head.vars;
    if (isReset) content.clear();
    if (isReset) isPartial = false;
    isPartial ||= data.row_count !== undefined;
    let [inserted, deleted] = [0, 0];
    const changes = data.boolean === undefined ? data.changes : answerChanges(data.boolean, content);
    for (const { weight, binding, triple, row } of changes) {
      const terms = row ?? (triple ? triple.map((term) => termsOf(term)[0]) : names.map((one) => binding[one] ?? null));
      const key = JSON.stringify(terms);
      const sum = Math.max(content.get(key)?.weight ?? 0, 0) + weight;
      content.set(key, { row: terms, weight: sum, since: isReset ? null : now });
      if (weight > 0) inserted += weight;
      else deleted -= weight;
    }
    place = `SN ${data.snapshot}`;
    const held = [...content.values()].filter(({ weight }) => weight > 0).map(({ row }) => row);
    points.push({ time: data.time_ms ?? Date.now(), counts: { rows: size(), inserted, deleted }, values: values(names, held, prefixes, points) });
    if (points.length > POINTS_MAX) points.shift();
    offer(choice, COUNTS, names, held);
    later();
  };
  const onEvent = (kind, data) => {
    if (kind === "reset" || kind === "change") {
      show(problem);
      take(data, kind === "reset");
    } else if (kind === "error") {
      show(problem, `The view has failed, and begins again: ${data.detail ?? JSON.stringify(data)}`);
    } else if (kind === "end") {
      isOver = data.error === undefined || data.error.status === 404;
      show(problem, data.error ? data.error.message : "The view has ended.");
    }
  };
  const begin = () => {
    content.clear();
    points.length = 0;
    isOver = false;
    for (const one of [problem, choice, facts, rows, drawn]) show(one);
    following.abort();
    following = new AbortController();
    follow(named("queries", name, `/changes?rows_max=${ROWS_MAX}`), onEvent, following.signal);
  };
  const describe = ({ text, stats }) => {
    prefixes = prefixesOf(text);
    if (isOver) begin(); // it was registered again
    return `${short(stats.reports)} reports, ${short(stats.rows)} rows changed, ${short(stats.errors)} errors; last change ${short(stats.last_change_us)} µs`;
  };

  show(parent, h("h3", {}, name), controls({ name, problem, leave, describe }), problem, facts, rows,
    h("label", { class: "choice" }, "Chart of ", choice), drawn);
  begin();
  const seen = () => later();
  document.addEventListener("visibilitychange", seen);
  return { stop: () => (following.abort(), document.removeEventListener("visibilitychange", seen)) };
}

/** Return the change of an ASK as that of a content of one row, its answer. */
function answerChanges(answer, content) {
  const old = [...content.values()].filter(({ weight }) => weight > 0);
  return [...old.map(({ row }) => ({ weight: -1, row })), { weight: 1, row: [{ type: "literal", value: `${answer}` }] }];
}
