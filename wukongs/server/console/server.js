/** The server: what is asked of it, its errors, and its windows as they come. */

const TOKEN = "wukongs-token";
const AGAIN_MS = 1000;

/** An answer that is an error. told: what the server says of it: title, detail, and line, column, excerpt of a query. */
export class ServerError extends Error {
  constructor(status, told) {
    super(told.detail ?? `the server has answered ${status}`);
    this.name = told.title ?? "Error";
    this.status = status;
    this.told = told;
  }
}

/** The server cannot be reached. */
export class Unreachable extends Error {}

const listeners = new Set();

/** Call a function with what is known of the server whenever it is asked: "here", "away", "token". */
export function onState(listener) {
  listeners.add(listener);
}

function tell(state) {
  for (const listener of listeners) listener(state);
}

/** Keep a token while the page is open; tell whether it can be one: a header has printable ASCII only. */
export function setToken(token) {
  const isOne = /^[!-~]+$/.test(token);
  sessionStorage.setItem(TOKEN, isOne ? token : "");
  return isOne;
}

export function hasToken() {
  return Boolean(sessionStorage.getItem(TOKEN));
}

/** Ask, and return the response once its head is there. Throws ServerError, Unreachable. */
export async function ask(path, { method = "GET", body, type, accept = "application/json", signal, headers } = {}) {
  const told = { Accept: accept, ...headers };
  if (type) told["Content-Type"] = type;
  const token = sessionStorage.getItem(TOKEN);
  if (token) told.Authorization = `Bearer ${token}`;
  let response;
  try {
    response = await fetch(new URL(path, document.baseURI), { method, body, headers: told, signal, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    tell("away");
    throw new Unreachable("the server cannot be reached");
  }
  tell(response.status === 401 ? "token" : "here");
  if (!response.ok) throw new ServerError(response.status, await problem(response));
  return response;
}

async function problem(response) {
  const text = await response.text();
  try {
    return JSON.parse(text);
  } catch {
    return { detail: text.trim() || response.statusText };
  }
}

export async function json(path, options) {
  return parsed(await (await ask(path, options)).text());
}

/** Parse JSON. Snapshot numbers are longer than JavaScript's numbers are exact: they stay texts. */
function parsed(text) {
  return JSON.parse(text.replace(/"(sn|snapshot)": ?(\d{16,})/g, '"$1": "$2"'));
}

export async function text(path, options) {
  return (await ask(path, { accept: "text/plain, application/problem+json;q=0.1", ...options })).text();
}

export async function sendJson(path, value, method = "POST") {
  return ask(path, { method, body: JSON.stringify(value), type: "application/json" });
}

/** Return the path of a stream or a query. */
export function named(kind, name, rest = "") {
  return `${kind}/${encodeURIComponent(name)}${rest}`;
}

/**
 * Give the lines of an answer, one by one, and end the answer with the loop: who has enough leaves it.
 */
export async function* lines(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let left = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const found = (left + value).split("\n");
      left = found.pop();
      yield* found;
    }
    if (left) yield left;
  } finally {
    reader.cancel().catch(() => {});
  }
}

/**
 * Follow the windows of a query until a signal: each event once, in order, over connections that are lost and made
 * again. onEvent gets the kind of an event and its data.
 */
export async function follow(name, onEvent, signal) {
  let last = null;
  while (!signal.aborted) {
    try {
      const headers = last === null ? {} : { "Last-Event-ID": last };
      const accept = "text/event-stream, application/problem+json;q=0.1";
      const response = await ask(named("queries", name, "/windows"), { accept, signal, headers });
      for await (const event of events(response)) {
        if (event.kind === "end") return onEvent("end", {});
        last = event.id ?? last;
        onEvent(event.kind, parsed(event.data));
      }
    } catch (error) {
      if (error.name === "AbortError") return;
      const isFinal = error instanceof ServerError && error.status < 500 && error.status !== 429;
      if (isFinal) return onEvent("end", { error });
    }
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
}

async function* events(response) {
  let event = {};
  for await (const line of lines(response)) {
    if (line === "") {
      if (event.data !== undefined) yield event;
      event = {};
    }
    const at = line.indexOf(":");
    if (at <= 0) continue; // a comment, or nothing
    const value = line.slice(at + 1).replace(/^ /, "");
    if (line.startsWith("event")) event.kind = value;
    if (line.startsWith("id")) event.id = value;
    if (line.startsWith("data")) event.data = value;
  }
}
