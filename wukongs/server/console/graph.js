/** Triples as a drawing of nodes and arrows, laid out by springs. */

import { h, s, show } from "./dom.js";
import { textOf } from "./terms.js";

const NODES_MAX = 150;
const [WIDTH, HEIGHT] = [900, 560];
const ROUNDS = 300;
const LABEL_MAX = 26;

/** Return an element that draws triples: of terms. */
export function drawing(triples, prefixes) {
  const nodes = new Map();
  const edges = [];
  let left = 0;
  const node = (term) => {
    const key = JSON.stringify(term);
    if (!nodes.has(key) && nodes.size < NODES_MAX) nodes.set(key, { term, x: 0, y: 0 });
    return nodes.get(key);
  };
  for (const [subject, predicate, object] of triples) {
    const [from, to] = [node(subject), node(object)];
    if (from && to) edges.push({ from, to, predicate });
    else left += 1;
  }
  layOut([...nodes.values()], edges);
  const arrow = s("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 14, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" },
    s("path", { d: "M0 0L8 4L0 8z", class: "arrow" }));
  const drawn = s(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "graph", role: "img", "aria-label": `${nodes.size} nodes and ${edges.length} triples` },
    s("defs", {}, arrow),
    ...edges.map(({ from, to, predicate }) =>
      s("g", {},
        s("line", { x1: from.x, y1: from.y, x2: to.x, y2: to.y, class: "edge", "marker-end": "url(#arrow)" }),
        s("text", { x: (from.x + to.x) / 2, y: (from.y + to.y) / 2 - 3, class: "edge-label" }, label(predicate, prefixes)))),
    ...[...nodes.values()].map(({ term, x, y }) =>
      s("g", {},
        s("title", {}, textOf(term, {})),
        s("circle", { cx: x, cy: y, r: 6, class: `node ${term.type}` }),
        s("text", { x: x + 9, y: y + 4, class: "node-label" }, label(term, prefixes)))),
  );
  const note = left > 0 ? h("p", { class: "note" }, `${NODES_MAX} nodes are drawn; ${left} triples have others.`) : null;
  const element = h("div", {});
  show(element, triples.length === 0 ? h("p", { class: "note" }, "There are no triples to draw.") : drawn, note);
  return element;
}

function label(term, prefixes) {
  const text = textOf(term, prefixes);
  const last = term.type === "uri" && text === term.value ? text.replace(/^.*[/#](?=.)/, "") : text;
  return last.length > LABEL_MAX ? `${last.slice(0, LABEL_MAX - 1)}…` : last;
}

/** Give each node its place: nodes push each other away, edges pull, and everything cools down. */
function layOut(nodes, edges) {
  const ideal = Math.sqrt((WIDTH * HEIGHT) / Math.max(nodes.length, 1)) * 0.75;
  nodes.forEach((node, at) => {
    const angle = at * 2.399963; // the golden angle: no two begin at one place
    const radius = (0.45 * HEIGHT * Math.sqrt(at + 0.5)) / Math.sqrt(nodes.length);
    node.x = WIDTH / 2 + radius * Math.cos(angle);
    node.y = HEIGHT / 2 + radius * Math.sin(angle);
  });
  for (let round = 0; round < ROUNDS; round++) {
    for (const node of nodes) node.dx = node.dy = 0;
    for (let a = 0; a < nodes.length; a++) {
      for (let b = a + 1; b < nodes.length; b++) push(nodes[a], nodes[b], (distance) => (ideal * ideal) / distance);
    }
    for (const { from, to } of edges) if (from !== to) push(from, to, (distance) => -(distance * distance) / ideal);
    const most = (WIDTH / 8) * (1 - round / ROUNDS) + 0.1;
    for (const node of nodes) {
      const length = Math.hypot(node.dx, node.dy) || 1;
      const step = Math.min(length, most) / length;
      node.x = Math.min(WIDTH - 120, Math.max(15, node.x + node.dx * step));
      node.y = Math.min(HEIGHT - 15, Math.max(15, node.y + node.dy * step));
    }
  }
}

function push(a, b, force) {
  const [x, y] = [a.x - b.x, a.y - b.y];
  const distance = Math.max(Math.hypot(x, y), 0.5);
  const strength = force(distance) / distance;
  a.dx += x * strength;
  a.dy += y * strength;
  b.dx -= x * strength;
  b.dy -= y * strength;
}
