/** Numbers over time: what a chart of windows or reports can draw. A point has its time, counts by name, and values. */

import { h } from "./dom.js";
import { numberOf, textOf } from "./terms.js";

export const POINTS_MAX = 300;
const LINES_MAX = 8;

/**
 * Return the numbers of rows: by column, pairs of what the rest of the row says and the value. The lines that the points
 * have go on; others begin while there are fewer than LINES_MAX.
 */
export function values(names, rows, prefixes, points) {
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

/** Offer the counts of points, and the columns that have numbers. */
export function offer(choice, counts, names, rows) {
  const numbers = names.filter((_, at) => rows.some((row) => numberOf(row[at]) !== null));
  const known = [...choice.options].map((option) => option.value);
  for (const one of [...counts, ...numbers]) {
    if (!known.includes(one)) choice.append(h("option", { value: one }, one));
  }
}

/** Return the lines of a chart: name -> list of [time in ms, value]. */
export function series(points, what) {
  if (points.some(({ counts }) => what in counts)) return new Map([[what, points.map(({ time, counts }) => [time, counts[what]])]]);
  const lines = new Map();
  for (const { time, values: found } of points) {
    for (const [key, value] of found.get(what) ?? []) {
      if (!lines.has(key) && lines.size >= LINES_MAX) continue;
      if (!lines.has(key)) lines.set(key, []);
      lines.get(key).push([time, value]);
    }
  }
  return lines;
}
