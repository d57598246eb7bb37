// One group: how far it is in each partition, its window offset by offset, who holds what, and what an operator changes.
import { useState } from "./vendor/hooks.js";
import { at, call, command, curl, get, now, useLive } from "./api.js";
import { Act, Badge, Field, Link, Notice, Pages, Panel, Shell, Table, Time, Waiting, clock, distance, html, many, num, span,
  useQuery } from "./parts.js";
import { Attention, Charts, Ranges, Tiles, useSamples } from "./overview.js";
import { Life } from "./record.js";
import { Settings } from "./settings.js";
import { Strip } from "./strip.js";

const LOOKED = 12; // partitions whose oldest records are looked at
const REST_MS = 20; // before the next look at what is in flight, for each range of records: a long list comes less often

const NOTHING = { places: new Map(), holders: new Map(), reasons: new Map() };
const placeOf = ({ topic, partition }) => `${topic} ${partition}`;

// What each partition has in flight, who holds how many records, and why others came back. The call loads nothing: an
// idle partition of the group stays idle.
async function inFlight(group, signal) {
  const { partitions } = await get(at("share-groups", group, "in-flight"), { loaded: true }, signal);
  const places = new Map(), holders = new Map(), reasons = new Map();
  for (const { topic, partition, batches } of partitions) {
    const sums = { acquired: 0, delayed: 0, available: 0 };
    places.set(placeOf({ topic, partition }), sums);
    for (const batch of batches) {
      const records = batch.last_offset - batch.first_offset + 1;
      if (batch.delivery_state === "ACQUIRED") sums.acquired += records;
      else if (batch.available_at_ms) sums.delayed += records;
      else if (batch.delivery_state === "AVAILABLE" && batch.delivery_count && !batch.transaction_id) sums.available += records;
      if (batch.reason) {
        const given = reasons.get(batch.reason) ?? { records: 0, place: { topic, partition, offset: batch.first_offset } };
        given.records += records;
        reasons.set(batch.reason, given);
      }
      if (batch.delivery_state !== "ACQUIRED") continue;
      const holder = holders.get(batch.member_id) ?? { held: 0, first: Infinity, attempt: 0 };
      holder.held += records;
      holder.attempt = Math.max(holder.attempt, batch.attempt);
      if (batch.lock_expires_at_ms < holder.first) {
        Object.assign(holder, { first: batch.lock_expires_at_ms, place: { topic, partition, offset: batch.first_offset } });
      }
      holders.set(batch.member_id, holder);
    }
  }
  return { places, holders, reasons, rest: partitions.reduce((sum, { batches }) => sum + batches.length, 0) * REST_MS };
}

// The time of the first record that the group has not finished. It reads the log alone, so it loads nothing.
async function ages(rows, signal) {
  const behind = rows.filter((row) => row.lag > 0 && row.start_offset >= 0).slice(0, LOOKED);
  const times = await Promise.all(behind.map(async (row) => {
    const path = at("topics", row.topic, "partitions", row.partition, "records");
    const page = await get(path, { offset: row.start_offset, max_records: 1, max_bytes: 1 }, signal).catch(() => ({ records: [] }));
    return [placeOf(row), page.records[0]?.timestamp_ms];
  }));
  return new Map(times);
}

export function Group({ name }) {
  const [query, change] = useQuery();
  const path = at("share-groups", name);
  const samples = useSamples({ group_id: name }, query.range);
  const config = useLive((signal) => get(at("share-groups", name, "config"), {}, signal), [name], 15_000);
  const live = useLive(async (signal) => {
    const [offsets, group] = await Promise.all([
      get(at("share-groups", name, "offsets"), { page_token: query.page }, signal),
      get(path, {}, signal),
    ]);
    const rows = offsets.topics.flatMap((topic) => topic.partitions.map((each) => ({ topic: topic.topic, ...each })));
    return { rows, next: offsets.next_page_token, workers: group.workers ?? [], group };
  }, [name, query.page], 5000);
  const flight = useLive((signal) => inFlight(name, signal), [name], 5000);
  const { rows = [], group } = live.data ?? {}, { places, holders, reasons } = flight.data ?? NOTHING;
  const first = rows.find((each) => each.topic === (query.topic ?? each.topic)) ?? { topic: query.topic, partition: 0 };
  // A partition that the address names and that is on another page of the list, or nowhere, is no other one.
  const named = { topic: first.topic, partition: Number(query.partition ?? first.partition) };
  const row = rows.find((each) => placeOf(each) === placeOf(named)) ?? (named.topic && named), chosen = rows.indexOf(row);
  const times = useLive((signal) => ages(rows, signal), [name, query.page, rows.length], 20_000).data ?? new Map();
  const dead = rows.reduce((sum, each) => sum + (each.open_dead_letters ?? 0), 0);
  const changed = () => { live.refresh(); flight.refresh(); config.refresh(); };
  const workers = live.data?.workers.length; // those of the last minute, whether they have joined the group or not
  const paused = config.data?.["share.paused"] === "true";
  return html`<div class="title"><h1><span class="kind">Group</span> ${name}</h1>
      ${group && html`<${Badge} kind=${workers ? "good" : "warn"}>${workers ? many(workers, "worker") : "no workers"}<//>`}
      ${paused && html`<${Badge} kind="warn">paused<//>`}
      <${Link} class=${dead ? "button bad" : "button"} names=${["groups", name, "dead-letters"]}>
      ${dead ? many(dead, "dead letter") : "Dead letters"}<//>
      <${Ranges} range=${query.range} onRange=${(range) => change({ range })} /></div>
    <${Notice} of=${live.fault ? live : flight} /><${Waiting} of=${live} /><${Attention} group=${name} />
    ${live.data && html`<${Tiles} samples=${samples} of="group" />
    <${Partitions} rows=${rows} next=${live.data.next} places=${places} times=${times} chosen=${chosen} query=${query} change=${change} />
    ${row && html`<${Strip} key=${`${row.topic} ${row.partition}`} group=${name} topic=${row.topic} partition=${row.partition} />
      <${Finder} group=${name} topic=${row.topic} partition=${row.partition} />
      ${query.offset !== undefined && html`<${Life} key=${`${row.topic} ${row.partition} ${query.offset}`} group=${name} topic=${row.topic}
        partition=${row.partition} offset=${Number(query.offset)} changed=${changed} />`}`}
    <${Workers} data=${live.data} holders=${holders} group=${name} />
    ${reasons.size > 0 && html`<${Reasons} reasons=${reasons} group=${name} />`}
    <${Panel} title="Over time"><${Charts} samples=${samples} of="group" /><//>
    <div class="pair">${config.data?.["share.paused"] !== undefined && html`<${Pause} group=${name} paused=${paused} changed=${changed} />`}
    <${Reset} group=${name} row=${row} rows=${rows} changed=${changed} /></div>
    ${config.data && html`<${Settings} kind="group" name=${name} values=${config.data} changed=${changed} />`}`}`;
}

function Partitions({ rows, next, places, times, chosen, query, change }) {
  const choose = ({ topic, partition }) => change({ topic, partition, offset: undefined, from: undefined, to: undefined }, false);
  const cells = rows.map((row) => {
    const of = places.get(placeOf(row)), time = times.get(placeOf(row)), sum = (state) => num(of?.[state]);
    return [
      html`<${Link} names=${["topics", row.topic]} query=${{ partition: row.partition }}>${row.topic}<//>`,
      html`<button type="button" class="link" onClick=${() => choose(row)}>${row.partition}</button>`,
      num(row.lag), time ? span(now() - time) : "–", sum("available"), sum("acquired"), sum("delayed"),
      row.open_dead_letters ? html`<span class="bad">${num(row.open_dead_letters)}</span>` : "0",
      num(row.start_offset), num(row.log_end_offset),
    ];
  });
  const columns = ["Topic", "Partition", "#Not finished", "#Oldest", "#To redeliver", "#Held", "#Delayed", "#Dead", "#Start", "#Log end"];
  return html`<${Panel} title="Partitions">
    <${Table} label="Partitions" columns=${columns} rows=${cells} chosen=${chosen} none="The group has not fetched from any topic yet."
      onChoose=${(row) => choose(rows[row])} />
    <${Pages} next=${next} shown=${query.page} onPage=${(page) => change({ page }, false)} /><//>`;
}

function Workers({ data, holders, group }) {
  const members = new Map(data.group.members.map((member) => [member.member_id, member]));
  const seen = new Map(data.workers.map((member) => [member.member_id, member]));
  const held = (name) => holders.get(name)?.held ?? 0;
  const names = [...new Set([...holders.keys(), ...seen.keys(), ...members.keys()])].sort((one, other) => held(other) - held(one));
  const rows = names.map((name) => {
    const holder = holders.get(name), member = members.get(name);
    return [
      name,
      member ? html`${member.client_host} <span class="dim">${member.client_id}</span>`
        : seen.get(name)?.client_host ?? "–",
      num(held(name)),
      holder ? html`<${Link} names=${["groups", group]} query=${holder.place} title="The first of its records whose lock ends">
        <time title=${clock(holder.first)}>${distance(holder.first)}</time><//>` : "–",
      num(holder?.attempt), seen.has(name) ? `${num(seen.get(name).seconds_ago)} s ago`
        : html`<${Badge} kind=${holder ? "warn" : ""}>${holder ? "silent for over a minute" : "not in the last minute"}<//>`,
    ];
  });
  return html`<${Panel} title="Workers">
    <${Table} label="Workers" columns=${["Member", "Host and client", "#Holds", "Next lock ends", "#Highest attempt", "Last call"]}
      rows=${rows} none="Nobody fetches." /><//>`;
}

// Why records that wait were given back, most of them first.
function Reasons({ reasons, group }) {
  const most = [...reasons].sort(([, one], [, other]) => other.records - one.records).slice(0, 10);
  return html`<${Panel} title="Why records came back">
    <${Table} label="Why records came back" columns=${["Reason", "#Records", "Such a record"]} rows=${most.map(([reason, { records, place }]) => [
    html`<span class="cut long">${reason}</span>`, num(records), html`<${Link} names=${["groups", group]}
      query=${place}>${place.topic}/${place.partition} at ${num(place.offset)}<//>`])} /><//>`;
}

// To a record by its offset, or to the newest ones by their key.
function Finder({ group, topic, partition }) {
  const [query, change] = useQuery();
  const [offset, set] = useState(""), [key, setKey] = useState("");
  const [found, show] = useState();
  const keyed = at("share-groups", group, "topics", topic, "records");
  const find = async (event) => {
    event.preventDefault();
    if (!key) return change({ topic, partition, offset: offset === "" ? undefined : offset, from: undefined, to: undefined }, false);
    show({});
    const page = await get(keyed, { key }).then((records) => ({ records }),
      (fault) => ({ fault }));
    return show(page);
  };
  return html`<${Panel} title="Find a record"><form class="bar" onSubmit=${find}>
    <${Field} label="Offset" type="number" min="0" value=${offset} placeholder=${query.offset ?? ""}
      onInput=${(event) => set(event.target.value)} />
      <${Field} label="or key" value=${key} onInput=${(event) => setKey(event.target.value)} /><button>Look up</button></form>
    ${key && html`<${Shell} cli=${command("records", "find", group, topic, key)} curl=${curl("GET", keyed, undefined, { key })} />`}
    ${found?.fault && html`<p class="notice bad">${found.fault.words}</p>`}
    ${found?.records && html`<${Table} label="Records with the key" columns=${["#Offset", "Time", "What the group does"]}
      none="No record has this key." rows=${found.records.records.map((record) => [
      html`<${Link} names=${["groups", group]} query=${{ topic, partition: record.partition, offset: record.offset }}>
        ${num(record.offset)}<//>`,
      html`<${Time} ms=${record.timestamp_ms} />`, record.state])} />`}<//>`;
}

function Pause({ group, paused, changed }) {
  const path = at("share-groups", group, "config"), body = { config: { "share.paused": String(!paused) } };
  const run = async () => {
    await call("PATCH", path, { body });
    changed();
    return paused ? "The group goes on." : "Paused: nobody gets records. Locks and acknowledgements go on.";
  };
  const ask = () => ({ text: "Nobody will get records of this group until you resume it. Records that are held can still be settled.",
    confirm: "Pause the group" });
  return html`<${Panel} title="Pause">
    <${Act} subject=${paused} label=${paused ? "Resume" : "Pause"} kind=${paused ? "main" : ""} ask=${paused ? undefined : ask} run=${run}
    shell=${{ cli: command("groups", paused ? "resume" : "pause", group), curl: curl("PATCH", path, body) }} /><//>`;
}

function Reset({ group, row, rows, changed }) {
  const [form, set] = useState({ to: "earliest", where: "partition", offset: "", datetime: "", force: false });
  const input = (name) => ({ value: form[name], onInput: (event) => set({ ...form, [name]: event.target.value }) });
  const path = at("share-groups", group, "offsets", "reset");
  const topics = !row || form.where === "all" ? undefined
    : [form.where === "topic" ? { topic: row.topic } : { topic: row.topic, partitions: [row.partition] }];
  const moment = form.datetime && new Date(form.datetime).toISOString();
  const body = { to: form.to, ...(topics && { topics }), ...(form.to === "offset" && { offset: Number(form.offset) }),
    ...(form.to === "datetime" && { datetime: moment }), ...(form.force && { force: true }) };
  const target = { earliest: ["--to-earliest"], latest: ["--to-latest"], current: ["--to-current"], offset: ["--to-offset", form.offset],
    datetime: ["--to-datetime", moment] }[form.to];
  const where = topics ? ["--topic", topics[0].partitions ? `${row.topic}:${row.partition}` : row.topic] : ["--all-topics"];
  const cli = command("groups", "reset-offsets", group, where, target, form.force ? ["--force"] : [], "--execute");
  const told = (answer) => {
    const before = (topic, partition) => rows.find((old) => old.topic === topic && old.partition === partition)?.start_offset;
    const moves = answer.topics.flatMap(({ topic, partitions }) => partitions.map(({ partition, start_offset: next }) =>
      `${topic}/${partition}: ${num(before(topic, partition))} → ${num(next)}`));
    const more = moves.length > 5 ? ` and ${num(moves.length - 5)} more` : "";
    const failed = answer.failed_count ? `; ${num(answer.failed_count)} failed: ${answer.errors[0]?.detail}` : "";
    return [moves.length, moves.slice(0, 5).join(", ") + more + failed];
  };
  const ask = async () => {
    const [count, said] = told(await call("POST", path, { body: { ...body, dry_run: true } }));
    return { text: `The group would begin again at: ${said}.`, confirm: count && `Reset ${many(count, "partition")}` };
  };
  const run = async () => {
    const [, said] = told(await call("POST", path, { body }));
    changed();
    return `Reset. ${said}.`;
  };
  const lacks = (form.to === "offset" && form.offset === "") || (form.to === "datetime" && !moment);
  const begins = [["earliest", "the first record"], ["latest", "the end"], ["offset", "an offset"], ["datetime", "a time"]];
  const places = row ? [["partition", `partition ${row.partition} of ${row.topic}`], ["topic", `all of ${row.topic}`]] : [];
  return html`<${Panel} title="Reset offsets">
    <${Act} subject=${JSON.stringify(body)} label="Show what would change" ask=${ask} run=${run} disabled=${lacks}
      shell=${{ cli, curl: curl("POST", path, body) }}>
    <div class="bar"><${Field} label="Begin at" ...${input("to")} options=${begins} />
      ${form.to === "offset" && html`<${Field} label="Offset" type="number" min="0" ...${input("offset")} />`}
      ${form.to === "datetime" && html`<${Field} label="Time" type="datetime-local" step="1" ...${input("datetime")} />`}
      <${Field} label="In" ...${input("where")} options=${[...places, ["all", "all its topics"]]} />
      <label class="check"><input type="checkbox" checked=${form.force}
        onChange=${(event) => set({ ...form, force: event.target.checked })} /> also while the group is in use: its members and locks end
      </label></div><//><//>`;
}
