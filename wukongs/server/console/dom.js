/** Elements, made from what they are to show. What data brings becomes text, never markup. */

const SVG = "http://www.w3.org/2000/svg";
const ENTRIES_MAX = 100;

/** Make an element. properties: attributes, or listeners under names such as onclick; false and null leave one out. */
export function h(tag, properties = {}, ...children) {
  return filled(document.createElement(tag), properties, children);
}

/** Make an element of a drawing. */
export function s(tag, properties = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), properties, children);
}

/** Let an element show other children than before. */
export function show(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child != null && child !== false && child !== ""));
}

const ROLES = ["read", "write", "admin"];
let role = "admin";

/** Use the role of the token from now on: what needs another one (data-needs) is disabled, and its title says why. */
export function setRole(next) {
  if (next === role || !ROLES.includes(next)) return;
  role = next;
  document.querySelectorAll("[data-needs]").forEach(allow);
}

function allow(element) {
  const needed = element.dataset.needs;
  element.disabled = ROLES.indexOf(role) < ROLES.indexOf(needed);
  element.title = element.disabled ? `This needs a token of the role ${needed}; this one has ${role}.` : "";
}

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  if (element.dataset.needs) allow(element);
  show(element, ...children);
  return element;
}

/** Let an element that is drawn again and again show other children; what was scrolled or has the focus stays so. */
export function renew(element, ...children) {
  const active = [...element.querySelectorAll("a, button, [tabindex]")].indexOf(document.activeElement);
  const places = [...element.querySelectorAll(".scroll")].map(({ scrollLeft: left, scrollTop: top }) => ({ left, top }));
  show(element, ...children);
  element.querySelectorAll(".scroll").forEach((one, at) => places[at] && one.scrollTo(places[at]));
  if (active >= 0) element.querySelectorAll("a, button, [tabindex]")[active]?.focus({ preventScroll: true });
}

/** Make a button. */
export function button(text, onclick, properties = {}) {
  return h("button", { type: "button", onclick, ...properties }, text);
}

/** Make a table of facts. rows: of texts or elements; numbers: the columns that stand to the right. */
export function table(caption, names, rows, numbers = []) {
  const align = (at) => ({ class: numbers.includes(at) && "number" });
  return h(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h(
      "table",
      {},
      names.some(Boolean) && h("thead", {}, h("tr", {}, ...names.map((name, at) => h("th", { scope: "col", ...align(at) }, name)))),
      h("tbody", {}, ...rows.map((row) => h("tr", {}, ...row.map((cell, at) => h("td", align(at), cell ?? ""))))),
    ),
  );
}

/**
 * Do something again and again while an element is on the page that can be seen, and never twice at the same time. The
 * longer it takes the rarer it is done: a server with thousands of queries is asked for a twentieth of the time at most.
 */
export function every(element, ms, act) {
  const again = async () => {
    const began = performance.now();
    try {
      if (!document.hidden) await act();
    } finally {
      if (element.isConnected) setTimeout(again, Math.max(ms, 19 * (performance.now() - began)));
    }
  };
  queueMicrotask(again);
}

/**
 * Make what leaves a long list readable: a field that picks entries by a part of their names, there once it is needed,
 * and the first ones of those. change: called when the field was written to. Return its element, and first(entries,
 * nameOf): the entries to show, and a note about those that are left.
 */
export function sieve(label, change) {
  const field = h("input", { type: "search", "aria-label": label, placeholder: label, oninput: () => change(), hidden: true });
  const first = (entries, nameOf) => {
    field.hidden = entries.length <= ENTRIES_MAX / 4 && field.value === "";
    const wanted = field.hidden ? "" : field.value.trim().toLowerCase();
    const found = wanted ? entries.filter((one) => nameOf(one).toLowerCase().includes(wanted)) : entries;
    const left = found.length - ENTRIES_MAX;
    const note = left > 0 ? `${left} more of ${found.length}: write a part of the name above.` : found.length === 0 && wanted ? "No name has this part." : "";
    return { shown: found.slice(0, ENTRIES_MAX), note: note && h("p", { class: "note" }, note) };
  };
  return { element: field, first };
}
