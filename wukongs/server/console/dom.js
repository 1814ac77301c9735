/** Elements, made from what they are to show. What data brings becomes text, never markup. */

const SVG = "http://www.w3.org/2000/svg";

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

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
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

/** Do something again and again while an element is on the page, and never twice at the same time. */
export function every(element, ms, act) {
  const again = async () => {
    try {
      if (!document.hidden) await act();
    } finally {
      if (element.isConnected) setTimeout(again, ms);
    }
  };
  queueMicrotask(again);
}
