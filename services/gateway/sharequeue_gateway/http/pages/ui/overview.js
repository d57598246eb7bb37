// All of the cluster at a glance: how much comes and goes, which groups need attention, and whether the services are well.
import { at, command, curl, get, members, now, useLive } from "./api.js";
import { Badge, Link, Notice, Pages, Panel, Shell, Table, Waiting, html, many, num, short, span, unknown, useQuery } from "./parts.js";
import { Chart, Spark } from "./chart.js";

const HOUR = 3_600_000;
const RANGES = [["1h", "1 h", HOUR], ["24h", "24 h", 24 * HOUR], ["7d", "7 d", 168 * HOUR]];
// Why a group needs attention: in two words, how bad it is, and in a sentence.
const REASONS = {
  no_worker: ["no worker", "bad", "Records wait, and nobody has fetched in the last minute."],
  falling_behind: ["falling behind", "warn", "The oldest record that waits is more than a minute old, and gets older."],
  errors: ["failing", "bad", "More deliveries fail than are accepted."],
  dead_letters: ["dead letters", "bad", "Dead letters are open: records that this group has given up."],
};
const Reason = ({ word }) => {
  const [text, kind, sentence] = REASONS[word] ?? [word];
  return html`<span title=${sentence}><${Badge} kind=${kind}>${text}<//></span>`;
};

// The samples of the cluster, a topic or a group; `query` names the topic or group.
export function useSamples(query, range) {
  const long = (RANGES.find(([name]) => name === range) ?? RANGES[0])[2];
  const load = async (signal) => {
    const { step_ms, points } = await get(at("reports", "samples"), { ...query, from_ms: Math.floor(now() - long) }, signal);
    if (points.at(-1)?.at_ms > now()) points.at(-1).open = true; // its step has not ended: it has no rate yet
    return { step_ms, points };
  };
  return { ...useLive(load, [range, JSON.stringify(query)]), long };
}
export const Ranges = ({ range, onRange }) => html`<div class="ranges" role="group" aria-label="Range of the charts">
  ${RANGES.map(([name, text]) =>
  html`<button type="button" aria-pressed=${(range ?? "1h") === name} onClick=${() => onRange(name)}>${text}</button>`)}</div>`;
const rate = (name, step) => (point) => (unknown(point[name]) || point.open ? undefined : (point[name] * 1000) / step);
const level = (name) => (point) => (unknown(point[name]) ? undefined : point[name]);
const perSecond = (value) => (unknown(value) ? "–" : `${short(value)}/s`);

export function Charts({ samples, of = "cluster" }) {
  const { data, long } = samples;
  if (!data) return html`<${Notice} of=${samples} /><${Waiting} of=${samples} />`;
  // A queue that is younger than the range is drawn from its first sample on.
  const step = data.step_ms, to = now(), began = Math.min((data.points[0]?.at_ms ?? 0) - step, to - 5 * 60_000);
  const shown = { points: data.points, from: Math.max(to - long, began), to, step };
  const into = of === "group" ? "to its topics" : "in";
  return html`<${Notice} of=${samples} /><div class="charts">
    <${Chart} title="Records a second" form=${perSecond} ...${shown} series=${[
      { name: into, value: rate("in_count", step), kind: "c-in" },
      ...(of === "topic" ? [] : [{ name: "accepted", value: rate("out_count", step), kind: "c-out" },
        { name: "failed", value: rate("failed_count", step), kind: "c-bad" }]),
    ]} />
    ${of !== "topic" && html`<${Chart} title="Not finished" ...${shown} series=${[
      { name: "backlog", value: level("backlog"), kind: "c-in" },
      { name: "held", value: level("held_count"), kind: "c-out" },
      { name: "delayed", value: level("delayed_count"), kind: "c-warn" },
    ]} />
    <${Chart} title="Oldest record that waits" form=${span} ...${shown}
      series=${[{ name: "age", value: level("oldest_ready_ms"), kind: "c-warn" }]} />`}</div>`;
}

const COUNTS = { Backlog: "From the first record that is not finished to the end of the log: those finished in between count, too." };
const Tile = ({ name, value, kind = "", values = [] }) => html`<div class="tile ${kind}"><dt title=${COUNTS[name]}>${name}</dt>
  <dd>${value}</dd>
  ${values.length > 1 && html`<${Spark} values=${values} />`}</div>`;
export function Tiles({ samples, of = "cluster" }) {
  const points = samples.data?.points ?? [], step = samples.data?.step_ms ?? 10_000, last = points.at(-1) ?? {};
  const line = (value) => points.slice(-60).map(value).filter((each) => each !== undefined);
  const into = line(rate("in_count", step)), out = line(rate("out_count", step));
  const tiles = [
    [of === "group" ? "To its topics" : "In", perSecond(into.at(-1)), into],
    ["Accepted", perSecond(out.at(-1)), out],
    ["Backlog", short(last.backlog), line(level("backlog"))],
    ["Oldest that waits", span(last.oldest_ready_ms), line(level("oldest_ready_ms"))],
    ["Held", short(last.held_count), line(level("held_count"))],
    ["Delayed", short(last.delayed_count), line(level("delayed_count"))],
    ["Dead letters", short(last.open_dead_letters), line(level("open_dead_letters")), last.open_dead_letters > 0 ? "bad" : ""],
  ];
  return html`<dl class="tiles">${tiles.map(([name, value, values, kind]) => html`<${Tile} name=${name} value=${value} values=${values}
    kind=${kind} />`)}</dl>`;
}

function GroupsTable({ size, token }) {
  const [, change] = useQuery();
  const live = useLive((signal) => get(at("reports", "attention"), { page_size: size, page_token: token }, signal), [token]);
  const rows = (live.data?.groups ?? []).map((group) => [
    html`<${Link} names=${["groups", group.group_id]}>${group.group_id}<//>${group.paused && html` <${Badge} kind="warn">paused<//>`}`,
    group.reasons.length ? group.reasons.map((word) => html`<${Reason} word=${word} />`) : html`<span class="dim">well</span>`,
    num(group.backlog), span(group.oldest_ready_ms), num(group.held_count), num(group.delayed_count),
    group.open_dead_letters ? html`<${Link} class="bad" names=${["groups", group.group_id, "dead-letters"]}>${num(group.open_dead_letters)}
      <//>` : "0",
    num(group.worker_count),
  ]);
  const columns = ["Group", "Needs attention", "#Backlog", "#Oldest", "#Held", "#Delayed", "#Dead", "#Workers"];
  return html`<${Notice} of=${live} /><${Waiting} of=${live} />
    ${live.data && html`<${Table} label="Groups" columns=${columns} rows=${rows} none="No group has work, workers or dead letters." />`}
    ${size > 20 ? html`<${Pages} next=${live.data?.next_page_token} shown=${token} onPage=${(page) => change({ page }, false)} />`
      : live.data?.next_page_token && html`<p class="foot"><${Link} names=${["groups"]}>All groups<//></p>`}`;
}
// Why one group needs attention, in sentences.
export function Attention({ group }) {
  const query = { group_id: group };
  const live = useLive((signal) => get(at("reports", "attention"), query, signal), [group]);
  const [seen] = live.data?.groups ?? [];
  if (!seen?.reasons.length) return null; // the view says what is wrong if the gateway does not answer
  return html`<${Panel} title="Needs attention" side=${html`<span class="dim">${num(seen.ready_count)} ready${
    seen.ready_count > 0 && html`, the oldest for ${span(seen.oldest_ready_ms)}`}; ${many(seen.worker_count, "worker")}</span>`}>
    <ul class="why">${seen.reasons.map((word) => html`<li><${Reason} word=${word} /> ${REASONS[word]?.[2]}</li>`)}</ul>
    <${Shell} cli=${command("groups", "attention", members({ group_id: group }))} curl=${curl("GET", at("reports", "attention"), undefined, query)} /><//>`;
}

const JOINED = { Empty: "nobody", Stable: "members" }; // by heartbeats: fetching needs no membership
export function Groups() {
  const [query, change] = useQuery();
  const live = useLive((signal) => get(at("share-groups"), { page_size: 200, page_token: query.all }, signal), [query.all], 15_000);
  const rows = (live.data?.groups ?? []).map((group) => [html`<${Link} names=${["groups", group.group_id]}>${group.group_id}
    <//>`, JOINED[group.state] ?? group.state, group.paused ? html`<${Badge}>paused<//>` : ""]);
  return html`<h1>Groups</h1>
    <${Panel} title="Groups with work, those that need attention first"><${GroupsTable} size=${100} token=${query.page} key=${query.page} />
    <//>
    <${Panel} title="All groups by name"><${Notice} of=${live} /><${Waiting} of=${live} />
      ${live.data && html`<${Table} label="All groups" columns=${["Group", "Joined", ""]} rows=${rows}
        none="There is no group yet. A group begins with its first fetch." />`}
      <${Pages} next=${live.data?.next_page_token} shown=${query.all} onPage=${(all) => change({ all }, false)} /><//>`;
}

// What a gateway knows of the others and of what it needs.
function Services() {
  const live = useLive((signal) => get("readyz", {}, signal), []);
  const data = live.data;
  if (!data) return html`<${Notice} of=${live} />`;
  const state = { ready: ["ready", "good"], degraded: ["works with less", "warn"],
    unavailable: ["unavailable", "bad"] }[data.status] ?? [data.status, ""];
  const parts = Object.entries(data.dependencies ?? {});
  return html`<${Notice} of=${live} /><dl class="facts"><dt>This gateway</dt><dd><${Badge} kind=${state[1]}>${state[0]}<//>
    ${data.works?.length ? html` <span class="dim">can ${data.works.join(", ")}</span>` : ""}</dd>
    ${data.gateways && html`<dt>${many(data.gateways.length, "gateway")}</dt><dd>${data.gateways.join(", ")}</dd>`}
    ${parts.map(([name, text]) => html`<dt>${name.replaceAll("_", " ")}</dt><dd class=${/^(ok|required)/.test(text) ? "" : "bad"}>${text}
      </dd>`)}
    ${parts.length === 0 && html`<dt>Dependencies</dt><dd class="dim">This gateway shows them at its port for operations.</dd>`}</dl>`;
}

export function Overview() {
  const [query, change] = useQuery();
  const samples = useSamples({}, query.range);
  return html`<div class="title"><h1>Overview</h1><${Ranges} range=${query.range} onRange=${(range) => change({ range })} /></div>
    <${Tiles} samples=${samples} />
    <${Panel} title="Groups" side=${html`<${Link} names=${["groups"]}>All groups<//>`}><${GroupsTable} size=${12} /><//>
    <${Panel} title="Over time"><${Charts} samples=${samples} /><//>
    <${Panel} title="Services"><${Services} /><//>`;
}
