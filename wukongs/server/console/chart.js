/** Lines over event time. */

import { h, s } from "./dom.js";

const [WIDTH_MAX, WIDTH_MIN, HEIGHT, LEFT, BOTTOM, TOP] = [720, 320, 200, 56, 24, 10];
const TICKS = 4;

/** Return an element with a chart. lines: name -> list of [time in ms, value]; what: the values and times, in words. */
export function chart(lines, what) {
  const width = Math.min(WIDTH_MAX, Math.max(WIDTH_MIN, innerWidth - 40)); // letters keep their size
  const points = [...lines.values()].flat();
  if (points.length === 0) return h("p", { class: "note" }, "Nothing to draw yet.");
  const times = points.map(([time]) => time);
  const values = points.map(([, value]) => value);
  const [first, last] = [Math.min(...times), Math.max(...times)];
  const step = niceStep((Math.max(...values) - Math.min(0, ...values)) / TICKS || 1);
  const low = step * Math.floor(Math.min(0, ...values) / step);
  const high = low + step * Math.max(1, Math.ceil((Math.max(...values) - low) / step));
  const x = (time) => LEFT + ((time - first) / (last - first || 1)) * (width - LEFT - 10);
  const y = (value) => HEIGHT - BOTTOM - ((value - low) / (high - low)) * (HEIGHT - BOTTOM - TOP);
  const grid = [];
  for (let value = low; value <= high + step / 2; value += step) {
    grid.push(s("line", { x1: LEFT, x2: width - 10, y1: y(value), y2: y(value), class: "grid" }));
    grid.push(s("text", { x: LEFT - 6, y: y(value) + 4, class: "tick", "text-anchor": "end" }, short(value)));
  }
  const ends = first === last ? [first] : [first, last];
  const labels = ends.map((time, at) =>
    s("text", { x: x(time), y: HEIGHT - 6, class: "tick", "text-anchor": at ? "end" : "start" }, timeText(time)));
  const drawn = [...lines].map(([, line], at) =>
    line.length === 1
      ? s("circle", { cx: x(line[0][0]), cy: y(line[0][1]), r: 3, class: `dot series-${at % 8}` })
      : s("polyline", { points: line.map(([time, value]) => `${x(time).toFixed(1)},${y(value).toFixed(1)}`).join(" "), class: `line series-${at % 8}` }));
  const legend = lines.size > 1
    ? h("ul", { class: "legend" }, ...[...lines.keys()].map((name, at) => h("li", {}, h("i", { class: `series-${at % 8}` }), name)))
    : null;
  const newest = [...lines.values()].map((line) => line.at(-1)[1]).slice(0, 3).map(short).join(", ");
  return h("figure", { class: "chart" },
    h("figcaption", {}, what),
    s("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": `${what}, newest ${newest}` }, ...grid, ...labels, ...drawn),
    legend);
}

function niceStep(raw) {
  const power = 10 ** Math.floor(Math.log10(raw));
  return power * [1, 2, 5, 10].find((one) => one * power >= raw * 0.999);
}

/** Return a number as people write it, with few digits. */
export function short(value) {
  const size = Math.abs(value);
  if (size >= 1e9) return `${+(value / 1e9).toPrecision(3)} G`;
  if (size >= 1e6) return `${+(value / 1e6).toPrecision(3)} M`;
  if (size >= 1e4) return `${+(value / 1e3).toPrecision(3)} K`;
  return `${Number.isInteger(value) ? value : +value.toPrecision(4)}`;
}

/** Return an event time as text: a time of day where it is one, else seconds. */
export function timeText(ms) {
  if (ms == null) return "–";
  if (ms > 1e11) return new Date(ms).toISOString().replace("T", " ").replace(/\.000Z$|Z$/, "");
  return `${+(ms / 1000).toFixed(3)} s`;
}

/** Return a count of bytes as text. */
export function bytesText(count) {
  for (const [size, unit] of [[1 << 30, "GiB"], [1 << 20, "MiB"], [1 << 10, "KiB"]]) {
    if (count >= size) return `${+(count / size).toPrecision(3)} ${unit}`;
  }
  return `${count} B`;
}
