// Calls of the public API, with the key of this tab in a header, and views that stay fresh while somebody looks at them.
import { useEffect, useRef, useState } from "./vendor/hooks.js";

export const BASE = new URL("..", import.meta.url).pathname;
const KEY = "sharequeue.key";
const CALM_MS = 60_000; // the longest wait after errors

export const key = () => sessionStorage.getItem(KEY) ?? "";
export function setKey(text) {
  if (text) sessionStorage.setItem(KEY, text);
  else sessionStorage.removeItem(KEY);
  window.dispatchEvent(new Event("key"));
}

// The gateway's time: the clock of this machine may be wrong.
let ahead = 0;
export const now = () => Date.now() + ahead;

export class Problem extends Error {
  constructor(status, document = {}, retryAfter = 0) {
    super(document.detail ?? `the gateway answered ${status}`);
    Object.assign(this, { status, code: document.code ?? "", errors: document.errors ?? [], retryAfter, document });
  }

  get words() {
    const places = this.errors.map((each) => `${each.pointer} ${each.detail}`).join("; ");
    const detail = places && !this.message.includes(places) ? `${this.message}: ${places}` : this.message;
    if (this.status === 0) return "The gateway does not answer.";
    if (this.status === 401) return key() ? "The gateway does not take this key. Enter another one." : "This gateway asks for a key.";
    if (this.status === 403) return `Your key does not allow this: ${detail}.`;
    if (this.status === 503) return `The gateway cannot do this now: ${detail}.`;
    return `${detail[0].toUpperCase()}${detail.slice(1)}${/[.!?]$/.test(detail) ? "" : "."} (${this.status} ${this.code})`;
  }
}

// Integers beyond 2^53 in values of records stay as they were sent.
const exact = (_name, value, context) =>
  typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "") ? BigInt(context.source) : value;

const queryOf = (query = {}) => {
  const set = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "" && value !== false);
  return set.length ? `?${new URLSearchParams(set)}` : "";
};

// `at("topics", name)`: the path of a call, with each name encoded.
export const at = (...names) => `v1/${names.map(encodeURIComponent).join("/")}`;

// `body`: an object, or a text that is JSON already. Throws a Problem, or an AbortError if `signal` ended it.
export async function call(method, path, { query, body, signal } = {}) {
  const headers = { Accept: "application/json" };
  if (key()) headers.Authorization = `Bearer ${key()}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const sent = typeof body === "object" ? JSON.stringify(body) : body;
  let answer, text;
  try {
    answer = await fetch(BASE + path + queryOf(query), { method, headers, body: sent, signal, cache: "no-store" });
    text = await answer.text();
  } catch (fault) {
    throw fault.name === "AbortError" ? fault : new Problem(0);
  }
  const there = Date.parse(answer.headers.get("date"));
  if (there) ahead = Math.abs(there - Date.now()) > 2000 ? there - Date.now() : 0;
  let document;
  try {
    document = text ? JSON.parse(text, exact) : undefined;
  } catch {
    document = { detail: text.slice(0, 200) };
  }
  if (answer.ok || path === "readyz") return document;
  throw new Problem(answer.status, document, Number(answer.headers.get("retry-after")) || 0);
}

export const get = (path, query, signal) => call("GET", path, { query, signal });

// The answer of `load`, again every few seconds, or after its `rest`. It pauses while the tab is hidden, and waits longer after
// each error.
export function useLive(load, deps, every = 10_000) {
  const [state, set] = useState({});
  const again = useRef();
  useEffect(() => {
    let timer, control, wait = every;
    const round = async () => {
      clearTimeout(timer);
      control?.abort();
      if (document.hidden) return;
      const mine = (control = new AbortController());
      try {
        const data = await load(mine.signal);
        if (mine.signal.aborted) return;
        wait = Math.min(Math.max(every, data?.rest ?? 0), CALM_MS);
        set({ data, at: Date.now() });
        window.dispatchEvent(new CustomEvent("live", { detail: true }));
      } catch (fault) {
        if (mine.signal.aborted) return;
        if (!(fault instanceof Problem)) console.error(fault);
        wait = Math.min(Math.max(wait * 2, (fault.retryAfter ?? 0) * 1000), CALM_MS);
        set((was) => ({ ...was, fault, wait }));
        window.dispatchEvent(new CustomEvent("live", { detail: fault.status === 404 }));
        if (fault.status === 401) return; // until there is another key
      }
      timer = setTimeout(round, wait * (0.9 + Math.random() / 5));
    };
    again.current = round;
    round();
    document.addEventListener("visibilitychange", round);
    window.addEventListener("key", round);
    return () => {
      clearTimeout(timer);
      control?.abort();
      document.removeEventListener("visibilitychange", round);
      window.removeEventListener("key", round);
    };
  }, deps);
  return { ...state, refresh: () => again.current?.() };
}

// The same call for a shell. Names may hold any character.
export const quoted = (text) => (/^[\w./:@%+=,-]+$/.test(text) ? text : `'${String(text).replaceAll("'", `'\\''`)}'`);
const USUAL = location.protocol === "http:" && location.host === "127.0.0.1:8080" && BASE === "/"; // what a command asks
const ELSEWHERE = USUAL ? [] : ["--url", location.origin + BASE.slice(0, -1)];
export const command = (...words) => ["sharequeue", ...words.flat(), ...ELSEWHERE].map((word) => quoted(String(word))).join(" ");
export const members = (given) => Object.entries(given).filter(([, value]) => value !== undefined).map(([name, value]) => `${name}=${value}`);
export function curl(method, path, body, query) {
  const words = ["curl", "-sS"];
  if (method !== "GET" && !(method === "POST" && body !== undefined)) words.push("-X", method);
  words.push(quoted(location.origin + BASE + path + queryOf(query)));
  if (key()) words.push("-H", '"Authorization: Bearer $SHAREQUEUE_TOKEN"');
  if (body !== undefined) words.push("-H", "'Content-Type: application/json'", "-d",
    quoted(typeof body === "string" ? body : JSON.stringify(body)));
  return words.join(" ");
}
