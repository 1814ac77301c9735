/** What can be done to a registered query, with its counts, and what it waits for. */

import { button, every, h, show } from "./dom.js";
import { makeEditor } from "./editor.js";
import { ask, json, named, text as textAt } from "./server.js";

const LOOK_MS = 2000;

/**
 * Return an element with the controls of a query.
 * problem: the element that errors are shown in; leave: called when the query was closed; describe: is given the query as
 * the server describes it, now and then, and returns its counts as text.
 */
export function controls({ name, problem, leave, describe }) {
  const counts = h("p", { class: "facts" });
  const why = h("p", { class: "why" });
  const told = h("div");
  const look = async () => {
    try {
      show(why, await textAt(named("queries", name, "/why")));
      const found = await json(named("queries", name));
      show(counts, describe(found), found.warnings.length ? h("span", { class: "warning" }, ` ${found.warnings.join("; ")}`) : "");
      pausing.textContent = found.is_paused ? "Resume" : "Pause";
    } catch (error) {
      show(why, error.message);
    }
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
    if (confirm(`Close query ${name}? Nobody gets results of it any more.`)) {
      doing(async () => (await ask(named("queries", name), { method: "DELETE" }), leave()));
    }
  }, { class: "danger", "data-needs": "admin" });
  every(why, LOOK_MS, look);
  return h("div", {}, counts, why, h("div", { class: "buttons" }, pausing, plan, edit, close), told);
}
