/** The view of one-shot queries and updates; a REGISTER QUERY is registered, and shown live. */

import { button, h, show } from "./dom.js";
import { makeEditor } from "./editor.js";
import { drawing } from "./graph.js";
import { rowsTable } from "./rows.js";
import { ServerError, ask, hasToken, json, lines, text as textAt } from "./server.js";
import { cellsOf, prefixesOf, termsOf } from "./terms.js";

const ROWS_MAX = 10_000;
const CHARACTERS_MAX = 20_000_000;
const LINK_MAX = 8000; // longer addresses are refused by servers between
const FILES = { table: { csv: "CSV", json: "JSON", tsv: "TSV" }, triples: { nt: "N-Triples", ttl: "Turtle" } };
const PREDICATES_MAX = 500;
const KEPT = "wukongs-query";
const FIRST = "SELECT ?s ?p ?o\nWHERE { ?s ?p ?o }\nLIMIT 50\n";
const UPDATES = ["INSERT", "DELETE", "LOAD", "CLEAR", "CREATE", "DROP", "COPY", "MOVE", "ADD", "WITH"];
const ACCEPT = "text/tab-separated-values, application/n-triples, application/problem+json;q=0.1";
const PREDICATES = `SELECT ?p (COUNT(*) AS ?n) { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } } GROUP BY ?p ORDER BY DESC(?n) LIMIT ${PREDICATES_MAX}`;
const known = { predicates: [], streams: [] };

/** Return whether a text is a query, an update, or to be registered. */
export function kindOf(text) {
  const plain = text.replace(/<[^>\s]*>|"(?:[^"\\\n]|\\.)*"/g, " ").replace(/#[^\n]*/g, " ");
  const rest = plain.replace(/\b(PREFIX\s+[^\s:]*:|BASE)\s*/gi, " ").replace(/^\s*VERSION\b/i, " ").trim();
  const first = /^\w+/.exec(rest)?.[0].toUpperCase() ?? "";
  if (first === "REGISTER") return "register";
  return UPDATES.includes(first) ? "update" : "query";
}

export async function queryView(parent, { go }) {
  const place = h("div", { class: "editor" });
  const status = h("p", { class: "status", role: "status" });
  const result = h("section", { "aria-label": "Result" });
  const stop = button("Stop", () => running?.abort(), { disabled: true });
  let running = null;

  const doing = async (act) => {
    running?.abort();
    const mine = (running = new AbortController());
    editor.clear();
    stop.disabled = false;
    status.className = "status";
    show(status, "Running …");
    try {
      localStorage.setItem(KEPT, editor.text());
    } catch {
      // too long to be kept
    }
    const began = performance.now();
    try {
      await act(editor.text(), mine.signal, () => `${(performance.now() - began).toFixed(1)} ms`);
    } catch (error) {
      if (running !== mine) return; // another one runs by now
      if (mine.signal.aborted) show(status, "Stopped.");
      else fail(error);
    } finally {
      if (running === mine) stop.disabled = true;
    }
  };
  const fail = (error) => {
    status.className = "status error";
    show(status, h("strong", {}, error.name), ` ${error.message}`);
    if (error instanceof ServerError && error.told.line) {
      editor.mark(error.told);
      if (error.told.suggestion && !error.message.includes(error.told.suggestion)) status.append(` – ${error.told.suggestion}`);
    }
    show(result);
  };
  const run = () =>
    doing(async (text, signal, took) => {
      const kind = kindOf(text);
      if (kind === "register") {
        const made = await (await ask("queries", { method: "POST", body: text, type: "application/sparql-query", signal })).json();
        go("live", made.name);
      } else if (kind === "update") {
        const done = await ask("sparql", { method: "POST", body: text, type: "application/sparql-update", signal });
        show(status, `Applied at snapshot ${done.headers.get("Wukongs-Snapshot")}, in ${took()}.`);
        show(result);
        learn();
      } else {
        const response = await ask("sparql", { method: "POST", body: text, type: "application/sparql-query", accept: ACCEPT, signal });
        const found = await read(response);
        const count = `${found.isCut ? "more than " : ""}${found.rows.length}`;
        show(status, `${count} ${found.names ? "rows" : "triples"} at snapshot ${response.headers.get("Wukongs-Snapshot")}, in ${took()}. `);
        const warning = response.headers.get("Wukongs-Warning");
        if (warning) status.append(h("span", { class: "warning" }, warning));
        show(result, found.isCut && whole(text, found.names ? FILES.table : FILES.triples), tabs(found, prefixesOf(text)));
      }
    });
  const plan = (analyze) =>
    doing(async (text, signal, took) => {
      const told = await textAt(`sparql?explain=${analyze ? "analyze" : "plan"}`, { method: "POST", body: text, type: "application/sparql-query", signal });
      show(status, `${analyze ? "The plan, with the rows of each step" : "The plan, with estimated rows"}, in ${took()}.`);
      show(result, h("pre", { class: "plan", tabindex: 0 }, told));
    });

  show(
    parent,
    h("h2", { class: "hidden" }, "Query"),
    place,
    h("div", { class: "buttons" }, button("Run", run, { class: "main", title: "Ctrl-Enter" }), stop, button("Plan", () => plan(false)), button("Plan with rows", () => plan(true))),
    status,
    result,
  );
  const editor = await makeEditor(place, { text: localStorage.getItem(KEPT) ?? FIRST, label: "Query", run, known: () => known });
  place.dataset.kind = editor.kind;
  learn();
  return () => running?.abort();
}

/** Find out what the editor may complete. */
async function learn() {
  try {
    const [streams, response] = await Promise.all([
      json("streams"),
      ask("sparql?timeout=2", { method: "POST", body: PREDICATES, type: "application/sparql-query", accept: ACCEPT }),
    ]);
    const { rows } = await read(response);
    known.streams = streams.map(({ iri }) => iri);
    known.predicates = rows.map(([iri, count]) => ({ iri: iri.value, count: count.value }));
  } catch {
    // the editor completes what it knows already
  }
}

/** Return the rows of an answer: names, rows of terms; names is null of triples. */
async function read(response) {
  const isTable = response.headers.get("Content-Type").startsWith("text/tab");
  const found = { names: null, rows: [], isCut: false };
  let size = 0;
  for await (const line of lines(response)) {
    size += line.length;
    if (isTable && found.names === null) {
      if (line === "true" || line === "false") return { names: ["answer"], rows: [[{ type: "literal", value: line }]], isCut: false };
      found.names = line === "" ? [] : line.split("\t").map((name) => name.replace("?", ""));
      continue;
    }
    if (found.rows.length === ROWS_MAX || (size > CHARACTERS_MAX && found.rows.length > 0)) {
      found.isCut = true;
      break;
    }
    if (isTable) found.rows.push(found.names.length ? cellsOf(line) : []);
    else if (line) found.rows.push(termsOf(line));
  }
  return found;
}

/** Say how to get all rows of a query: by links, or where these cannot be, on the command line. */
function whole(text, files) {
  const links = Object.entries(files).map(([format, name]) => {
    const href = `sparql?format=${format}&query=${encodeURIComponent(text)}`;
    return href.length <= LINK_MAX && h("a", { href, download: `rows.${format}` }, name);
  });
  if (!hasToken() && links.every(Boolean)) return h("p", { class: "note files" }, "The first ones are shown. All of them, asked again: ", ...links);
  const token = hasToken() ? ' -H "Authorization: Bearer $TOKEN"' : "";
  const [format] = Object.keys(files);
  const address = new URL(`sparql?format=${format}`, document.baseURI);
  return h("p", { class: "note files" }, "The first ones are shown. All of them, with the query in a file: ",
    h("code", {}, `curl${token} -H 'Content-Type: application/sparql-query' --data-binary @query.rq '${address}' > rows.${format}`));
}

function tabs({ names, rows }, prefixes) {
  const triples = names === null ? rows : triplesOf(rows);
  const panel = h("div", { role: "tabpanel" });
  const views = {
    Table: () => rowsTable(names ?? ["subject", "predicate", "object"], rows, prefixes),
    Graph: () => drawing(triples, prefixes),
  };
  const list = Object.entries(views).map(([name, make]) => {
    const tab = button(name, () => {
      for (const one of list) one.setAttribute("aria-selected", one === tab);
      show(panel, make());
    }, { role: "tab", "aria-selected": false });
    return tab;
  });
  list[0].click();
  return h("div", {}, h("div", { role: "tablist", "aria-label": "Show as" }, ...list), panel);
}

/** Return what rows say as triples to draw: those of three columns are taken as they are, two columns as pairs. */
function triplesOf(rows) {
  const arrow = { type: "literal", value: "" };
  return rows
    .filter((row) => !row.includes(null))
    .flatMap((row) => (row.length === 3 ? [row] : row.length === 2 ? [[row[0], arrow, row[1]]] : []));
}
