/** The console: its views by the address behind #, whether the server is there, light and dark. */

import { every, h, show } from "./dom.js";
import { engineView } from "./engine.js";
import { liveView } from "./live.js";
import { queryView } from "./query.js";
import { hasToken, json, onState, setToken } from "./server.js";
import { streamsView } from "./streams.js";

const VIEWS = { query: ["Query", queryView], live: ["Live", liveView], streams: ["Streams", streamsView], engine: ["Engine", engineView] };
const THEMES = { auto: "Auto", light: "Light", dark: "Dark" };
const THEME = "wukongs-theme";
const LOOK_MS = 3000;

const [view, nav, state, theme] = [
  document.getElementById("view"), document.querySelector("nav"), document.getElementById("state"), document.getElementById("theme"),
];
let leave = null;

function go(name, rest) {
  location.hash = rest === undefined ? name : `${name}/${encodeURIComponent(rest)}`;
}

async function open() {
  const [name, rest] = location.hash.slice(1).split("/");
  const [title, make] = VIEWS[Object.hasOwn(VIEWS, name) ? name : "query"];
  leave?.();
  leave = null;
  document.title = `${title} – wukongs`;
  for (const link of nav.querySelectorAll("a")) {
    if (link.textContent === title) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const element = h("div", { class: `view-${name || "query"}` });
  show(view, element);
  const mine = await make(element, { go, name: rest === undefined ? undefined : decoded(rest) });
  if (element.isConnected) leave = mine;
  else mine?.();
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // written by hand
  }
}

function tell(said) {
  if (state.dataset.state === said) return;
  state.dataset.state = said;
  if (said === "token") {
    const field = h("input", { type: "password", "aria-label": "Token", placeholder: "token", autocomplete: "off" });
    const use = (event) => {
      event.preventDefault();
      state.dataset.state = "";
      if (setToken(field.value)) open();
      else tell("token");
    };
    const told = hasToken() ? "This server does not know that token. " : "This server needs a token. ";
    show(state, h("form", { onsubmit: use }, told, field, h("button", {}, "Use")));
  } else {
    show(state, said === "away" ? "The server cannot be reached. Trying again …" : "connected");
  }
}

function paint(kind) {
  document.documentElement.style.colorScheme = kind === "auto" ? "" : kind;
  theme.textContent = THEMES[kind];
  theme.setAttribute("aria-label", `Colours: ${THEMES[kind]}`);
  localStorage.setItem(THEME, kind);
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address behind # names the view
  view.focus();
});
theme.addEventListener("click", () => {
  const kinds = Object.keys(THEMES);
  paint(kinds[(kinds.indexOf(localStorage.getItem(THEME)) + 1) % kinds.length]);
});
document.addEventListener("keydown", (event) => {
  const link = event.altKey && !event.ctrlKey && nav.querySelectorAll("a")[Number(event.code.replace("Digit", "")) - 1];
  if (!link) return;
  event.preventDefault();
  link.click();
  view.focus();
});
show(nav, Object.entries(VIEWS).map(([name, [title]], at) => h("a", { href: `#${name}`, title: `Alt-${at + 1}` }, title)));
paint(localStorage.getItem(THEME) in THEMES ? localStorage.getItem(THEME) : "auto");
onState(tell);
addEventListener("hashchange", open);
every(nav, LOOK_MS, () => json("sparql?query=ASK%7B%7D").catch(() => {}));
open();
