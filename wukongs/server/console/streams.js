/** The view of streams: how fast they come, how far they are, what is late, and what they hold up. */

import { bytesText, short, timeText } from "./chart.js";
import { button, every, h, renew, show, sieve, table } from "./dom.js";
import { ask, json, named, sendJson } from "./server.js";
import { shortened, WELL_KNOWN } from "./terms.js";

const LOOK_MS = 1000;
const HELD_MAX = 10;

export function streamsView(parent) {
  const facts = h("div");
  const problem = h("p", { class: "status", role: "status" });
  const names = h("datalist", { id: "streams" });
  let [stats, rates, before] = [null, {}, null];

  const look = async () => {
    const found = await json("stats?only=streams&only=held_back_by").catch(() => null);
    if (found === null) return;
    const now = performance.now();
    const rate = (iri, tuples) =>
      before?.tuples[iri] === undefined ? "–" : short(Math.max(0, Math.round(((tuples - before.tuples[iri]) * 1000) / (now - before.at))));
    const streams = Object.entries(found.streams);
    if (String(Object.keys(stats?.streams ?? {})) !== String(Object.keys(found.streams))) show(names, streams.map(([iri]) => h("option", { value: iri })));
    rates = Object.fromEntries(streams.map(([iri, one]) => [iri, rate(iri, one.tuples)]));
    stats = found;
    before = { at: now, tuples: Object.fromEntries(streams.map(([iri, one]) => [iri, one.tuples])) };
    paint();
  };
  const sieved = sieve("Filter streams", () => paint());
  const paint = () => {
    const streams = Object.entries(stats.streams);
    const { shown, note } = sieved.first(streams, ([iri]) => iri);
    const held = Object.entries(stats.held_back_by ?? {});
    renew(facts,
      streams.length === 0
        ? h("p", { class: "note" }, "No stream is declared. Declare one below, or with wukongs run.")
        : table("Streams", ["stream", "tuples", "per second", "closed up to", "kept", "late", "dropped", "state"],
            shown.map(([iri, one]) => [
              h("span", { class: "iri", title: iri }, shortened(iri, WELL_KNOWN) ?? iri), short(one.tuples), rates[iri], timeText(one.closed_ms),
              bytesText(one.slice_bytes + one.waiting_bytes), short(one.late), short(one.dropped), state(iri, one, stats),
            ]), [1, 2, 3, 4, 5, 6]),
      note,
      held.length === 0
        ? h("p", { class: "note" }, "No stream holds others up.")
        : h("ul", { class: "held" }, ...held.slice(0, HELD_MAX).map(([iri, ms]) =>
            h("li", {}, h("strong", {}, iri), ` holds the others up: ${ms === null ? "it has told no time yet" : `it stands at ${timeText(ms)}`}. Push to it, let it advance, or close it.`)),
            held.length > HELD_MAX && h("li", {}, `${held.length - HELD_MAX} more hold the others up.`)));
  };
  const doing = (said, act) => async (event) => {
    event.preventDefault();
    try {
      await act(new FormData(event.target));
      problem.className = "status";
      show(problem, said);
      await look();
    } catch (error) {
      problem.className = "status error";
      show(problem, h("strong", {}, error.name), ` ${error.message}`);
    }
  };
  const declare = doing("Declared.", (form) =>
    sendJson("streams", { iri: form.get("iri"), batch_ms: Number(form.get("batch_ms")), timing: form.get("timing") === "on" }));
  const push = doing("Pushed.", (form) => {
    const time = form.get("advance_ms");
    const path = named("streams", form.get("iri"), time === "" ? "" : `?advance_ms=${encodeURIComponent(time)}`);
    return ask(path, { method: "POST", body: form.get("lines"), type: "text/plain" });
  });
  const end = async (iri, isDrop) => {
    if (!iri) return;
    if (!confirm(isDrop ? `Drop stream ${iri}?` : `Close stream ${iri}? Nothing more can come.`)) return;
    try {
      await ask(named("streams", iri, isDrop ? "" : "/close"), { method: isDrop ? "DELETE" : "POST" });
      await look();
    } catch (error) {
      problem.className = "status error";
      show(problem, error.message);
    }
  };
  const ending = h("input", { list: "streams", "aria-label": "Stream to end", placeholder: "stream" });
  show(parent, h("h2", {}, "Streams"), sieved.element, facts, names, problem,
    h("details", {}, h("summary", {}, "Push tuples"),
      h("form", { onsubmit: push },
        h("label", {}, "Stream ", h("input", { name: "iri", list: "streams", required: true })),
        h("label", {}, "Tuples, one a line: subject, predicate, object, dot, time in ms",
          h("textarea", { name: "lines", rows: 4, placeholder: '<http://ex/a> <http://ex/p> "1" . 500', spellcheck: "false" })),
        h("label", {}, "Then advance to, in ms ", h("input", { name: "advance_ms", inputmode: "numeric", pattern: "[0-9]*" })),
        h("button", { class: "main", "data-needs": "write" }, "Push"))),
    h("details", {}, h("summary", {}, "Declare a stream"),
      h("form", { onsubmit: declare },
        h("label", {}, "IRI ", h("input", { name: "iri", required: true, placeholder: "http://ex/s" })),
        h("label", {}, "Length of its batches in ms ", h("input", { name: "batch_ms", value: 100, required: true, pattern: "[0-9]+", inputmode: "numeric" })),
        h("label", {}, h("input", { type: "checkbox", name: "timing" }), " its tuples live in windows only"),
        h("button", { class: "main", "data-needs": "admin" }, "Declare"))),
    h("details", {}, h("summary", {}, "End a stream"),
      h("div", { class: "buttons" }, ending, button("Close", () => end(ending.value, false), { "data-needs": "write" }),
        button("Drop", () => end(ending.value, true), { class: "danger", "data-needs": "admin" }))));
  every(facts, LOOK_MS, look);
}

function state(iri, one, stats) {
  if (iri in (stats.held_back_by ?? {})) return h("span", { class: "warning" }, "holds others up");
  if (one.idle_hold) return h("span", { class: "warning", title: one.idle_hold }, "idle, of another day");
  if (one.is_idle) return one.idle_advance ? "idle, follows the clock" : "idle";
  return one.closed_ms === null ? "waits for its first tuple" : "runs";
}
