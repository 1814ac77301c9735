/* rsp-js behind the JSON lines of README.md: node peer.cjs FOLDER, with its packages in FOLDER/node_modules.

Each window is a continuous query of its own, in RSP-QL: registered, given the stored triples as static data and the
window's triples as events, and closed by one event later. An engine of rsp-js cannot answer a second window here: each
row that it answers moves the origin of its windows by one step. It says nothing about windows that are all empty. */

"use strict";

const fs = require("fs");
const readline = require("readline");
const { createRequire } = require("module");

const folder = process.argv[2];
const load = createRequire(`${folder}/package.json`);
const { RSPEngine } = load("rsp-js");
const { DataFactory, Parser, StreamParser } = load("n3");
const sparql = load("sparqljs");

const RANGE = 1000;
const NOT_ASCII_SAFE = { '"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f" };

class CannotSay extends Error {}

/** Return a term as N-Triples has it. */
function written(term) {
  if (term.termType === "NamedNode") return `<${term.value}>`;
  if (term.termType === "BlankNode") return `_:${term.value}`;
  const text = `"${term.value.replace(/["\\\n\r\t\b\f]/g, (found) => NOT_ASCII_SAFE[found])}"`;
  return term.language ? `${text}@${term.language}` : `${text}^^<${term.datatype.value}>`;
}

/** Return the names of the variables of a SELECT, in order. */
function variablesOf(query) {
  const parsed = new sparql.Parser().parse(query);
  if (parsed.queryType !== "SELECT") throw new CannotSay(`expected a SELECT, found ${parsed.queryType}`);
  const named = parsed.variables.map((one) => one.variable ?? one);
  if (named.some((one) => one.termType !== "Variable")) throw new CannotSay("expected variables, found SELECT *");
  return named.map((one) => one.value);
}

class Peer {
  stored = [];
  windows = {};

  /** Read a file of N-Triples. */
  load(path) {
    return new Promise((resolve, reject) => {
      const parser = new StreamParser({ format: "N-Triples" });
      parser.on("data", (quad) => this.stored.push(quad)).on("end", resolve).on("error", reject);
      fs.createReadStream(path).on("error", reject).pipe(parser);
    });
  }

  window(graphs) {
    this.windows = {};
    for (const [name, lines] of Object.entries(graphs)) {
      this.windows[name] = new Parser({ format: "N-Triples" }).parse(lines);
    }
  }

  async select(query) {
    const names = Object.keys(this.windows);
    if (!names.length) throw new CannotSay("a query without windows");
    const variables = variablesOf(query);
    const windows = names.map((name) => `FROM NAMED WINDOW <${name}> ON STREAM <${name}> [RANGE ${RANGE} STEP ${RANGE}]`);
    const engine = new RSPEngine(["REGISTER RStream <answers> AS", ...windows, query].join("\n"));
    for (const quad of this.stored) engine.addStaticData(quad);
    const rows = [];
    const valueOf = (bindings, name) => (bindings.has(name) ? written(bindings.get(name)) : null);
    engine.register().on("RStream", ({ bindings }) => rows.push(variables.map((name) => valueOf(bindings, name))));
    const answered = ended(engine);
    for (const name of names) {
      for (const quad of this.windows[name]) engine.getStream(name).add(quad, 1);
    }
    const closing = names.find((name) => this.windows[name].length);
    if (!closing) return rows;
    const later = DataFactory.namedNode("urn:x-wukongs:later");
    engine.getStream(closing).add(DataFactory.quad(later, later, later), RANGE + 1);
    await answered;
    return rows;
  }
}

/** Return a promise that the answer to a window is whole. rsp-js tells its rows only, so its stream of bindings does. */
function ended(engine) {
  const operator = engine.r2r;
  const execute = operator.execute.bind(operator);
  return new Promise((resolve, reject) => {
    operator.execute = async (container) => {
      try {
        const bindings = await execute(container);
        bindings.on("end", resolve).on("error", reject);
        return bindings;
      } catch (error) {
        reject(error);
        throw error;
      }
    };
  });
}

async function answer(peer, message) {
  switch (message.do) {
    case "hello":
      return { name: "rsp-js", version: JSON.parse(fs.readFileSync(load.resolve("rsp-js/package.json"))).version };
    case "load":
      await peer.load(message.path);
      return {};
    case "window":
      peer.window(message.graphs);
      return {};
    case "select":
      return { rows: await peer.select(message.query) };
    default:
      throw new Error(`expected hello, load, window or select, found ${message.do}`);
  }
}

async function main() {
  for (const name of ["debug", "error", "info", "log", "warn"]) console[name] = () => {}; // it tells of each event
  process.chdir(folder); // it writes its log into ./logs if that is there
  process.on("unhandledRejection", () => {}); // a query that fails: the answer tells it
  const peer = new Peer();
  for await (const line of readline.createInterface({ input: process.stdin, crlfDelay: Infinity })) {
    let found;
    try {
      found = await answer(peer, JSON.parse(line));
    } catch (error) {
      found = error instanceof CannotSay ? { cannot: error.message } : { error: String(error.message ?? error) };
    }
    process.stdout.write(JSON.stringify(found) + "\n");
  }
}

main();
