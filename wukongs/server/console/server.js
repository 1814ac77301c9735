/** The server: what is asked of it, its errors, and its windows as they come. */

import { setRole } from "./dom.js";

const TOKEN = "wukongs-token";
const AGAIN_MS = 1000;
const ENDED = 1000; // why a socket closes

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
  setRole(response.headers.get("Wukongs-Role"));
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
  return JSON.parse(text.replace(/"(sn|snapshot|after)": ?(\d{16,})/g, '"$1": "$2"'));
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
  const begun = []; // the parts of the line that has not ended: one of many megabytes is joined once
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      const found = value.split("\n");
      if (found.length > 1) {
        yield begun.splice(0).join("") + found.shift();
        begun.push(found.pop());
        yield* found;
      } else begun.push(value);
    }
    const last = begun.join("");
    if (last) yield last;
  } finally {
    reader.cancel().catch(() => {});
  }
}

/**
 * Follow the windows of a query, or the changes of a live view, until a signal: each event once, in order, over sockets
 * that are lost and made again. path: with parameters. onEvent gets the kind of an event and its data. Sockets, since a
 * browser has six other connections with a host only, for all its pages.
 */
export async function follow(path, onEvent, signal) {
  let last = null;
  while (!signal.aborted) {
    const after = last === null ? "" : `&after=${last}`;
    const isOver = await listen(path + after, (told) => {
      if (told.event === "refused") {
        const isFinal = told.data.status < 500 && told.data.status !== 429;
        if (isFinal) onEvent("end", { error: new ServerError(told.data.status, told.data) });
        return isFinal;
      }
      last = told.id;
      onEvent(told.event, told.data);
      return false;
    }, signal);
    if (isOver && !signal.aborted) return;
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
}

/** Hear a socket until it closes; return whether that is the end: onTold has said so, or the query has ended. */
function listen(path, onTold, signal) {
  const address = new URL(path, document.baseURI);
  address.protocol = address.protocol.replace("http", "ws");
  const token = sessionStorage.getItem(TOKEN);
  const beside = token ? [`bearer.${btoa(token).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")}`] : [];
  const socket = new WebSocket(address, ["wukongs", ...beside]);
  const leave = () => socket.close();
  signal.addEventListener("abort", leave);
  return new Promise((resolve) => {
    let isOver = false;
    socket.onmessage = ({ data }) => {
      if (!signal.aborted) isOver = onTold(parsed(data)) || isOver;
    };
    socket.onclose = ({ code }) => {
      signal.removeEventListener("abort", leave);
      if (code === ENDED && !isOver && !signal.aborted) onTold({ event: "end", data: {} });
      resolve(isOver || code === ENDED);
    };
  });
}
