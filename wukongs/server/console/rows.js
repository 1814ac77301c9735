/** Rows of terms as a table: as many as a person reads, more on demand, sorted by any column. */

import { button, h, show } from "./dom.js";
import { numberOf, shown, textOf } from "./terms.js";

const PAGE = 100;

/**
 * Return an element with a table of rows. names: of the columns; rows: of terms, null where unbound; marks: place of a
 * row -> its class; ages: place of a row -> how long it has had the class, in ms; sorted: by which column, for tables
 * that follow each other.
 */
export function rowsTable(names, rows, prefixes, marks = new Map(), sorted = { by: null, down: false }, ages = new Map()) {
  const body = h("tbody");
  const more = h("p", { class: "more" });
  const places = rows.map((_, place) => place);
  const isNumber = names.map((_, at) => rows.length > 0 && rows.every((row) => row[at] == null || numberOf(row[at]) !== null));
  let count = 0;

  const fill = (to) => {
    for (const place of places.slice(count, to)) {
      const cells = rows[place].map((term, at) => h("td", { class: isNumber[at] && "number" }, shown(term, prefixes)));
      if (ages.has(place)) cells.forEach((cell) => (cell.style.animationDelay = `${-ages.get(place)}ms`));
      body.append(h("tr", { class: marks.get(place) }, ...cells));
    }
    count = Math.min(to, rows.length);
    const left = rows.length - count;
    show(more, left > 0 && `${left} more rows. `, left > 0 && button("Show more", () => fill(count + 10 * PAGE)));
  };
  const sort = () => {
    const at = names.indexOf(sorted.by);
    const sign = sorted.down ? -1 : 1;
    const keys = rows.map((row) => (isNumber[at] ? numberOf(row[at]) ?? -Infinity : textOf(row[at], prefixes)));
    const compare = isNumber[at] ? (a, b) => a - b : new Intl.Collator().compare;
    places.sort((a, b) => sign * compare(keys[a], keys[b]) || a - b);
    heads.forEach((head, place) => head.setAttribute("aria-sort", place === at ? (sorted.down ? "descending" : "ascending") : "none"));
    body.replaceChildren();
    count = 0;
    fill(PAGE);
  };
  const heads = names.map((name, at) =>
    h("th", { scope: "col", "aria-sort": "none", class: isNumber[at] && "number" }, button(name, () => sortBy(name), { class: "plain" })),
  );
  const sortBy = (name) => {
    sorted.down = sorted.by === name && !sorted.down;
    sorted.by = name;
    sort();
  };
  if (names.includes(sorted.by)) sort();
  else fill(PAGE);
  const whole = h("table", {}, h("thead", {}, h("tr", {}, ...heads)), body);
  return h("div", {}, h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Rows" }, whole), more);
}
