// What every view is made of: links, numbers, times, values, notices, and actions that ask before they act.
import { h } from "./vendor/preact.js";
import { useEffect, useRef, useState } from "./vendor/hooks.js";
import htm from "./vendor/htm.js";
import { BASE, get, now } from "./api.js";

export const html = htm.bind(h);

// Addresses

export const place = () => ({ path: location.pathname.slice(BASE.length + 2) || "/",
  query: Object.fromEntries(new URLSearchParams(location.search)) });
export function to(names, query = {}) {
  const set = Object.entries(query).filter(([, value]) => value !== undefined && value !== "" && value !== null);
  return `${BASE}ui${names.map((name) => `/${encodeURIComponent(name)}`).join("")}${set.length ? `?${new URLSearchParams(set)}` : ""}`;
}
export function go(address, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", address);
  window.dispatchEvent(new Event("place"));
}
// The query of the address, and a function that changes parts of it. Each view keeps there what a link to it needs.
export function useQuery() {
  const [, again] = useState(0);
  useEffect(() => {
    const look = () => again((count) => count + 1);
    for (const event of ["place", "popstate"]) window.addEventListener(event, look);
    return () => ["place", "popstate"].forEach((event) => window.removeEventListener(event, look));
  }, []);
  const change = (fields, replace = true) => {
    const query = Object.entries({ ...place().query, ...fields }).filter(([, value]) => value !== undefined && value !== ""
      && value !== null);
    go(location.pathname + (query.length ? `?${new URLSearchParams(query)}` : ""), { replace });
  };
  return [place().query, change];
}
// What is open in a list stands in the address, too: its id, and a function that opens or closes another one.
export function useOpen() {
  const [{ open }, change] = useQuery();
  return [open, (id) => change({ open: open === id ? undefined : id })];
}
export const Link = ({ names, query, children, ...more }) => html`<a href=${to(names, query)} ...${more}>${children}</a>`;

// Numbers and times

const whole = new Intl.NumberFormat("en");
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
export const unknown = (value) => value === undefined || value === null || value === -1;
export const num = (value) => (unknown(value) ? "–" : whole.format(value));
export const short = (value) => (unknown(value) ? "–" : Math.abs(value) < 10_000 ? whole.format(Math.round(value * 10) / 10)
  : compact.format(value));
export const many = (count, one, more = `${one}s`) => `${num(count)} ${count === 1 ? one : more}`;
export const bytes = (count) => (count < 1024 ? `${count} B` : count < 1 << 20 ? `${(count / 1024).toFixed(1)} KiB`
  : `${(count / (1 << 20)).toFixed(1)} MiB`);
export function span(ms) {
  if (unknown(ms)) return "–";
  const s = Math.abs(ms) / 1000;
  if (s === 0) return "0 s";
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  return s < 172_800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86_400)} d`;
}
export const clock = (ms) => {
  const day = new Date(ms), today = new Date(now()).toDateString() === day.toDateString();
  return day.toLocaleString("en-GB", { ...(today ? {} : { day: "numeric", month: "short", year: "numeric" }), hour: "2-digit",
    minute: "2-digit", second: "2-digit" });
};
const iso = (ms) => new Date(ms).toISOString();
export const Time = ({ ms }) => (unknown(ms) ? "–" : html`<time dateTime=${iso(ms)} title=${iso(ms)}>${clock(ms)}</time>`);
export const distance = (ms) => (ms >= now() ? `in ${span(ms - now())}` : `${span(now() - ms)} ago`);

// Blocks

export const Panel = ({ title, side, children, ...more }) => html`<section class="panel" aria-label=${title} ...${more}>
  <header><h2>${title}</h2>${side && html`<div class="side">${side}</div>`}</header>${children}</section>`;
export const Badge = ({ kind = "", children }) => html`<span class="badge ${kind}">${children}</span>`;
// `columns`: headings; one that begins with # is of numbers. `rows`: arrays of cells. `details(row)`: what stands below a
// row that is open.
export const Table = ({ label, columns, rows, none = "Nothing here.", chosen, onChoose, details }) => {
  if (rows.length === 0) return html`<p class="none">${none}</p>`;
  const press = (row) => onChoose && ((event) => event.target.closest("a,button,input") || onChoose(row));
  const kind = (column) => (columns[column][0] === "#" ? "n" : "");
  return html`<div class="scroll" role="region" tabindex="0" aria-label=${label}><table>
    <thead><tr>${columns.map((name, column) => html`<th scope="col" class=${kind(column)}>${name.replace("#", "")}</th>`)}</tr></thead>
    <tbody>${rows.map((cells, row) => {
      const below = details?.(row);
      return html`<tr class=${row === chosen ? "chosen" : below ? "open" : ""} onClick=${press(row)}>
        ${cells.map((cell, column) => html`<td class=${kind(column)} data-head=${columns[column].replace("#", "")}>${cell}</td>`)}</tr>
        ${below && html`<tr class="below"><td colspan=${columns.length}>${below}</td></tr>`}`;
    })}</tbody></table></div>`;
};
// What opens and closes the details of a row.
export const Opener = ({ open, onPress, children, ...more }) =>
  html`<button type="button" class="link" aria-expanded=${open} onClick=${onPress} ...${more}>${children}</button>`;

// Why a view is not fresh, in words.
export function Notice({ of }) {
  if (!of?.fault) return null;
  const words = of.fault.words ?? `This page has a fault: ${of.fault.message}`;
  const next = of.fault.status === 401 ? "" : ` The page asks again in ${span(of.wait)}.`;
  return html`<p class="notice bad" role="status">${words}${next} ${of.at ? `Shown is the state of ${clock(of.at)}. ` : ""}
    ${of.fault.status !== 401 && html`<button type="button" class="link" onClick=${of.refresh}>Ask now</button>`}</p>`;
}
export const Waiting = ({ of }) => (of.data || of.fault ? null : html`<p class="none">Loading …</p>`);

export function Shell({ curl, cli, words = "The same in a shell" }) {
  const copy = (text) => navigator.clipboard?.writeText(text);
  const line = (text) => text && html`<div class="line"><pre tabindex="0">${text}</pre>
    ${navigator.clipboard && html`<button type="button" class="small" onClick=${() => copy(text)}>Copy</button>`}</div>`;
  return html`<details class="shell"><summary>${words}</summary>${line(cli)}${line(curl)}</details>`;
}

// Values of records

const CHILDREN = 100;
export function Json({ value, name }) {
  const [open, set] = useState(name === undefined);
  const [most, more] = useState(CHILDREN);
  const label = name === undefined ? "" : html`<span class="name">${name}: </span>`;
  if (value === null || typeof value !== "object") {
    const kind = value === null ? "null" : typeof value;
    return html`<div class="leaf">${label}<span class=${kind}>${kind === "string" ? JSON.stringify(value) : String(value)}</span></div>`;
  }
  const entries = Object.entries(value), list = Array.isArray(value);
  return html`<details open=${open} onToggle=${(event) => event.target === event.currentTarget && set(event.currentTarget.open)}>
    <summary>${label}${list ? `[ ${many(entries.length, "element")} ]` : `{ ${many(entries.length, "member")} }`}</summary>
    ${open && html`<div class="inside">
      ${entries.slice(0, most).map(([each, inside]) => html`<${Json} key=${each} name=${each} value=${inside} />`)}
      ${entries.length > most && html`<button type="button" class="link" onClick=${() => more(most * 10)}>
        ${num(entries.length - most)} more</button>`}</div>`}</details>`;
}
export const Value = ({ record }) => html`<div class="value">
  ${record.value_base64 !== undefined && record.value_base64 !== null
    ? html`<pre tabindex="0">${record.value_base64}</pre><p class="dim">bytes, in base64</p>`
    : record.value === undefined ? html`<p class="dim">The value is not here any more.</p>`
    : record.value === null ? html`<p class="dim">null: a tombstone</p>` : html`<div class="json"><${Json} value=${record.value} /></div>`}
  ${Object.keys(record.headers ?? {}).length > 0 && html`<h3>Headers</h3><dl class="facts">
    ${Object.entries(record.headers).map(([name, text]) => html`<dt>${name}</dt><dd>${text}</dd>`)}</dl>`}</div>`;
export const keyOf = (record) => record.key ?? (record.key_base64 ? `${record.key_base64} (base64)` : "–");
export const brief = (record) => {
  if (record.value_base64) return `${record.value_base64.slice(0, 80)} (base64)`;
  const text = JSON.stringify(record.value, (_name, value) => (typeof value === "bigint" ? JSON.rawJSON(value) : value)) ?? "–";
  return text.length > 120 ? `${text.slice(0, 120)}…` : text;
};

// Actions

// The first press asks the gateway what would happen (`ask` returns `{ text, confirm }`, without `confirm` if there is
// nothing to do); the second one, at another place, does it. Without `ask` one press does it. `run` gets what was answered, and
// returns what was done.
// A change of `subject` (what the action is about) takes back what was asked.
export function Act({ label, ask, run, kind = "", shell, disabled, subject, children }) {
  const [state, set] = useState({});
  useEffect(() => set({}), [subject]);
  const alive = useRef(true);
  useEffect(() => () => (alive.current = false), []);
  const show = (next) => alive.current && set(next);
  const attempt = async (work, then) => {
    show({ busy: true, text: "…" });
    try {
      const found = await work((text) => show({ busy: true, text }));
      show(then(found));
    } catch (fault) {
      show({ bad: true, text: fault.words ?? fault.message });
    }
  };
  const act = () => attempt((progress) => run(progress, state), (text) => ({ text }));
  const press = () => state.busy || (ask ? attempt(ask, (found) => (found.confirm ? found : { text: found.text })) : act());
  // Cancel takes the place of the button that was pressed, and its focus: Enter twice does nothing. Behind an action the
  // keyboard goes on from the first button again.
  const form = useRef(), asked = useRef();
  useEffect(() => {
    if (asked.current && document.activeElement === document.body) form.current.querySelector(".row > button").focus();
    asked.current = state.confirm;
  }, [state.confirm]);
  return html`<form class="act" ref=${form} onSubmit=${(event) => { event.preventDefault(); press(); }}
    onKeyDown=${(event) => event.key === "Escape" && state.confirm && set({})}>
    ${children}
    <div class="row">${state.confirm ? html`<button type="button" onClick=${() => set({})}>Cancel</button>`
      : html`<button type="submit" class=${kind} disabled=${disabled}>${label}</button>`}
      <span role="status" class="say ${state.bad ? "bad" : ""}">${state.text}</span>
      ${state.confirm && html`<button type="button" class="danger" onClick=${act}>${state.confirm}</button>`}</div>
    ${shell && html`<${Shell} ...${shell} />`}</form>`;
}
// A field of a form with its label.
export const Field = ({ label, wide, options, ...more }) => html`<label class=${wide ? "field wide" : "field"}><span>${label}</span>${
  options ? html`<select ...${more}>${options.map(([value, text]) => html`<option value=${value} selected=${value === more.value}>${text}
    </option>`)}</select>`
  : more.rows ? html`<textarea ...${more} />` : html`<input autocomplete="off" spellcheck=${false} ...${more} />`}</label>`;

// Pages of a list: the token of the page shown stands in the address, so a link leads to it, and Back to the page before.
export const Pages = ({ next, shown, onPage }) => html`<div class="pages">
  ${shown && html`<button type="button" onClick=${() => onPage(undefined)}>First page</button>`}
  ${next && html`<button type="button" onClick=${() => onPage(next)}>Next page</button>`}</div>`;

let known;
export const settings = () => (known ??= get("ui/settings.json").catch((fault) => { known = undefined; throw fault; }));
