/** RDF terms: read as N-Triples write them or as JSON results have them, and shown short. */

import { h } from "./dom.js";

const XSD = "http://www.w3.org/2001/XMLSchema#";
const NUMBERS = new Set(
  ["integer", "decimal", "double", "float", "long", "int", "short", "byte", "nonNegativeInteger", "positiveInteger",
    "nonPositiveInteger", "negativeInteger", "unsignedLong", "unsignedInt", "unsignedShort", "unsignedByte"]
    .map((name) => XSD + name),
);
const TERM = /\s*(?:(<<\()|(\)>>)|<([^>]*)>|_:([^\s,;]+)|"([^"\\]*(?:\\.[^"\\]*)*)"(?:@([A-Za-z\d]+(?:-[A-Za-z\d]+)*)(?:--(ltr|rtl))?|\^\^<([^>]*)>)?)/y;
const ESCAPES = { t: "\t", n: "\n", r: "\r", b: "\b", f: "\f" };
const SHOWN_MAX = 300;

export const WELL_KNOWN = {
  rdf: "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
  rdfs: "http://www.w3.org/2000/01/rdf-schema#",
  xsd: XSD,
  owl: "http://www.w3.org/2002/07/owl#",
  skos: "http://www.w3.org/2004/02/skos/core#",
  foaf: "http://xmlns.com/foaf/0.1/",
  dct: "http://purl.org/dc/terms/",
  schema: "http://schema.org/",
  geo: "http://www.w3.org/2003/01/geo/wgs84_pos#",
  sosa: "http://www.w3.org/ns/sosa/",
  ssn: "http://purl.oclc.org/NET/ssnx/ssn#",
  prov: "http://www.w3.org/ns/prov#",
};

function unescaped(text) {
  return text.replace(/\\(u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|.)/g, (_, all, four, eight) => {
    if (four || eight) return String.fromCodePoint(parseInt(four ?? eight, 16));
    return ESCAPES[all] ?? all;
  });
}

/** Return the terms of a row of TSV; null for an empty cell. */
export function cellsOf(line) {
  return line.split("\t").map((cell) => (cell === "" ? null : termsOf(cell)[0]));
}

/** Return the terms of a line of N-Triples, or of a part of one. A triple term has its own three as its value. */
export function termsOf(line) {
  const open = [[]];
  TERM.lastIndex = 0;
  for (let match = TERM.exec(line); match !== null; match = TERM.exec(line)) {
    const [, begins, ends, ...parts] = match;
    if (begins) open.push([]);
    else if (!ends) open.at(-1).push(term(parts));
    else if (open.length > 1) {
      const [subject, predicate, object] = open.pop();
      open.at(-1).push({ type: "triple", value: { subject, predicate, object } });
    }
  }
  return open[0];
}

/** Make a term as JSON results have it. */
function term([iri, blank, literal, language, direction, datatype]) {
  if (iri !== undefined) return { type: "uri", value: unescaped(iri) };
  if (blank !== undefined) return { type: "bnode", value: blank };
  return { type: "literal", value: unescaped(literal), "xml:lang": language, "its:dir": direction, datatype };
}

/** Return the value of a number, null of any other term. */
export function numberOf(term) {
  if (term?.type !== "literal" || !NUMBERS.has(term.datatype)) return null;
  const value = Number(term.value.replace(/INF$/, "Infinity"));
  return Number.isNaN(value) ? null : value;
}

/** Return the prefixes that a query declares, and below them those that everybody knows. */
export function prefixesOf(query) {
  const own = {};
  for (const [, name, iri] of query.matchAll(/\bPREFIX\s+([\w.-]*):\s*<([^>]*)>/gi)) own[name] = iri;
  return { ...WELL_KNOWN, ...own };
}

/** Return an IRI as a prefixed name, or null if no prefix fits. */
export function shortened(iri, prefixes) {
  let best = null;
  for (const [name, start] of Object.entries(prefixes)) {
    const rest = iri.startsWith(start) && start ? iri.slice(start.length) : null;
    if (rest === null || !/^[\p{L}\p{N}_][\p{L}\p{N}_.-]*$/u.test(rest) || rest.endsWith(".")) continue;
    if (best === null || start.length > best.start.length) best = { name, start, rest };
  }
  return best && `${best.name}:${best.rest}`;
}

/** Return a term as text for people. */
export function textOf(term, prefixes) {
  if (term == null) return "";
  if (term.type === "triple") return `<<( ${Object.values(term.value).map((part) => textOf(part, prefixes)).join(" ")} )>>`;
  if (term.type === "uri") return shortened(term.value, prefixes) ?? term.value;
  if (term.type === "bnode") return `_:${term.value}`;
  return term.value;
}

/** Return an element that shows a term: short, whole in its title; an address of the web can be followed. */
export function shown(term, prefixes) {
  if (term == null) return h("span", { class: "unbound", title: "unbound" }, "–");
  const text = textOf(term, prefixes);
  const short = text.length > SHOWN_MAX ? `${text.slice(0, SHOWN_MAX)} …` : text;
  if (term.type === "uri") {
    const title = `<${term.value}>`;
    if (!/^https?:\/\//.test(term.value)) return h("span", { class: "iri", title }, short);
    return h("a", { class: "iri", title, href: term.value, target: "_blank", rel: "noreferrer" }, short);
  }
  if (numberOf(term) !== null) {
    const isLong = /^[+-]?\d{1,4}\.\d{7,}$/.test(text);
    return h("span", { class: "numeral", title: `${text} ${term.datatype}` }, isLong ? `${+Number(text).toPrecision(10)}` : short);
  }
  const tag = [term["xml:lang"], term["its:dir"]].filter(Boolean).join("--");
  return h("span", { class: term.type, title: term.datatype ?? text }, short, tag && h("sup", {}, `@${tag}`));
}
