/** The text of queries: its tokens for colours, and what may stand at a place for completion. */

import { WELL_KNOWN, prefixesOf, shortened } from "./terms.js";

const KEYWORDS = new Set(
  `ADD ALL AS ASC ASK BASE BIND BY CLEAR CONSTRUCT COPY CREATE DATA DEFAULT DELETE DESC DESCRIBE DISTINCT DROP DSTREAM
  EXISTS FILTER FROM GRAPH GROUP HAVING IN INSERT INTO ISTREAM LIMIT LOAD MINUS MOVE NAMED NOT OFFSET ON OPTIONAL ORDER
  PREFIX QUERY RANGE REDUCED REGISTER RSTREAM SELECT SERVICE SILENT STEP STREAM TO TRIPLES TUMBLING UNDEF UNION USING
  VALUES WHERE WINDOW WITH COUNT SUM AVG MIN MAX SAMPLE GROUP_CONCAT STR LANG DATATYPE BOUND IRI BNODE RAND ABS CEIL FLOOR
  ROUND CONCAT STRLEN UCASE LCASE ENCODE_FOR_URI CONTAINS STRSTARTS STRENDS STRBEFORE STRAFTER YEAR MONTH DAY HOURS
  MINUTES SECONDS NOW UUID STRUUID COALESCE IF STRLANG STRDT SAMETERM ISIRI ISBLANK ISLITERAL ISNUMERIC REGEX SUBSTR
  REPLACE TIMESTAMP TRUE FALSE`.split(/\s+/),
);
const RULES = [
  ["iri", /<[^<>"{}|^`\\\s]*>/y],
  ["comment", /#[^\n]*/y],
  ["string", /"""[^]*?"""|'''[^]*?'''|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'/y],
  ["variable", /[?$]\w+/y],
  ["name", /_?[\p{L}]?[\p{L}\p{N}_.-]*:(?:[\p{L}\p{N}_:%-]|\.(?=[\p{L}\p{N}_:%-])|\\.)*/uy],
  ["number", /\d+(?:\.\d+)?(?:[eE][+-]?\d+)?[a-zA-Z]*/y],
  ["word", /[\p{L}_][\p{L}\p{N}_]*/uy],
];

/** Return the tokens of a text that have a colour: kind, from, to. */
export function tokens(text) {
  const found = [];
  for (let at = 0; at < text.length; ) {
    let to = at + 1;
    for (const [kind, rule] of RULES) {
      rule.lastIndex = at;
      if (!rule.test(text)) continue;
      to = rule.lastIndex;
      const isKeyword = kind === "word" && KEYWORDS.has(text.slice(at, to).toUpperCase());
      if (kind !== "word" || isKeyword) found.push({ kind: isKeyword ? "keyword" : kind, from: at, to });
      break;
    }
    at = to;
  }
  return found;
}

/** Return from where to where an error of the server stands in a text. */
export function placeOf(text, { line, column, excerpt }) {
  const lines = text.split("\n");
  const characters = [...(lines[line - 1] ?? "")]; // which the server counts; JavaScript counts halves of some
  const length = (from, to) => characters.slice(from, to).join("").length;
  const from = Math.min(lines.slice(0, line - 1).join("\n").length + (line > 1) + length(0, column - 1), text.length);
  const count = /\^+/.exec((excerpt ?? "").split("\n").at(-1) ?? "")?.[0].length ?? 1;
  return { from, to: Math.min(from + Math.max(length(column - 1, column - 1 + count), 1), text.length) };
}

/**
 * Return what may stand before a place: from where it would be replaced, and the choices: label, detail, text, and the
 * prefix that has to be declared with it. known: predicates (IRI, count) and streams (IRI) of the engine. null: nothing.
 */
export function completions(text, place, known) {
  const before = text.slice(0, place);
  const variable = /[?$]\w*$/.exec(before);
  if (variable) {
    const names = new Set(text.match(/[?$]\w+/g));
    names.delete(variable[0]);
    return choices(variable.index, [...names].sort().map((label) => ({ label, kind: "variable" })));
  }
  const iri = /<[^<>\s]*$/.exec(before);
  if (iri) {
    const isStream = /\bSTREAM\s*$/i.test(before.slice(0, iri.index));
    const streams = known.streams.map((one) => ({ label: `<${one}>`, detail: "stream", kind: "stream" }));
    const predicates = known.predicates.map(({ iri: one, count }) => ({ label: `<${one}>`, detail: `${count}`, kind: "predicate" }));
    return choices(iri.index, isStream ? streams : [...predicates, ...streams]);
  }
  const stream = /\bSTREAM\s+$/i.exec(before);
  if (stream) return choices(place, known.streams.map((one) => ({ label: `<${one}>`, detail: "stream", kind: "stream" })));
  const declared = /\bPREFIX\s+(\w*)$/i.exec(before);
  if (declared) {
    const all = Object.entries(WELL_KNOWN).map(([name, start]) => ({ label: `${name}: <${start}>`, kind: "prefix" }));
    return choices(place - declared[1].length, all);
  }
  const name = /[\p{L}_][\p{L}\p{N}_.-]*:[\p{L}\p{N}_.-]*$|:[\p{L}\p{N}_.-]*$|[\p{L}_]\w*$/u.exec(before);
  if (!name) return null;
  const prefixes = prefixesOf(text);
  const found = known.predicates.flatMap(({ iri: one, count }) => {
    const short = shortened(one, prefixes);
    if (short === null) return [];
    const prefix = short.slice(0, short.indexOf(":"));
    const isMissing = !new RegExp(`\\bPREFIX\\s+${prefix}:`, "i").test(text);
    return [{ label: short, detail: `${count}`, kind: "predicate", declares: isMissing ? `PREFIX ${prefix}: <${prefixes[prefix]}>\n` : "" }];
  });
  if (name[0].includes(":")) return choices(name.index, found);
  const words = [...KEYWORDS].map((label) => ({ label, kind: "keyword" }));
  return choices(name.index, [...found, ...words]);
}

function choices(from, options) {
  return options.length ? { from, options } : null;
}
