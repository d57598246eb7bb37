// Topics: their partitions and rates, the records of one partition, and what an operator does with them.
import { useState } from "./vendor/hooks.js";
import { at, call, command, curl, get, quoted, useLive } from "./api.js";
import { Act, Field, Link, Notice, Opener, Pages, Panel, Shell, Table, Time, Value, Waiting, brief, go, html, keyOf, many, num, to,
  useQuery } from "./parts.js";
import { Charts, Ranges, useSamples } from "./overview.js";
import { Periodic, Waiters } from "./scheduled.js";
import { Settings } from "./settings.js";

const PAGE = 25;
const LOOKED = 500, LOOKS = 40; // records of a look by key, and looks until a person asks for more

export function Topics() {
  const [query, change] = useQuery();
  const live = useLive((signal) => get(at("topics"), { page_size: 200, page_token: query.page }, signal), [query.page]);
  const wanted = query.filter ?? "";
  const topics = (live.data?.topics ?? []).filter((topic) => topic.name.includes(wanted));
  const rows = topics.map((topic) => [html`<${Link} names=${["topics", topic.name]}>${topic.name}
    <//>`, num(topic.partitions), html`<code class="dim">${topic.topic_id}</code>`]);
  return html`<h1>Topics</h1><${Notice} of=${live} />
    <${Panel} title="Topics" side=${html`<${Field} label="Filter this page" value=${wanted}
      onInput=${(event) => change({ filter: event.target.value })} />`}>
    <${Waiting} of=${live} />${live.data && html`<${Table} label="Topics" columns=${["Topic", "#Partitions", "Id"]} rows=${rows}
      none="No topic here." />`}
    <${Pages} next=${live.data?.next_page_token} shown=${query.page} onPage=${(page) => change({ page, filter: undefined }, false)} /><//>`;
}

export function Topic({ name }) {
  const [query, change] = useQuery();
  const live = useLive((signal) => get(at("topics", name), {}, signal), [name]);
  const samples = useSamples({ topic: name }, query.range);
  const partitions = live.data?.partitions ?? [];
  const chosen = Math.max(0, partitions.findIndex((each) => each.partition === Number(query.partition ?? -1)));
  const partition = partitions[chosen];
  const rows = partitions.map((each) => [
    html`<${Link} names=${["topics", name]} query=${{ partition: each.partition }}>${each.partition}<//>`,
    num(each.log_end_offset - each.log_start_offset), num(each.log_start_offset), num(each.last_stable_offset), num(each.log_end_offset),
  ]);
  return html`<div class="title"><h1><span class="kind">Topic</span> ${name}</h1>
    <${Ranges} range=${query.range} onRange=${(range) => change({ range })} /></div>
    <${Notice} of=${live} /><${Waiting} of=${live} />
    ${live.data && html`<${Panel} title="Rate"><${Charts} samples=${samples} of="topic" /><//>
    <${Panel} title=${many(partitions.length, "partition")}>
    <${Table} label="Partitions" columns=${["Partition", "#Offsets", "#First", "#Stable end", "#End"]} rows=${rows} chosen=${chosen}
      onChoose=${(row) => change({ partition: partitions[row].partition, offset: undefined, open: undefined })} /><//>
    <${Records} key=${partition.partition} topic=${name} partition=${partition} partitions=${partitions} />
    <${ByKey} topic=${name} />
    <div class="pair"><${Produce} topic=${name} count=${partitions.length} done=${live.refresh} />
    <${Delete} key=${partition.partition} topic=${name} id=${live.data.topic_id} partition=${partition} done=${live.refresh} /></div>
    <${Waiters} topic=${name} /><${Periodic} topic=${name} />
    <${Settings} kind="topic" name=${name} values=${live.data.config} changed=${live.refresh} />`}`;
}

// The first record at a time or later: timestamps ascend, so each look halves what is left.
async function offsetAt(path, ms, first, end) {
  let low = first, high = end;
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    const [record] = (await get(path, { offset: middle, max_records: 1 })).records;
    if (record === undefined || record.timestamp_ms >= ms) high = middle;
    else low = record.offset + 1;
  }
  return low;
}

function Records({ topic, partition, partitions }) {
  const [query, change] = useQuery();
  const { log_start_offset: first, log_end_offset: end } = partition;
  const path = at("topics", topic, "partitions", partition.partition, "records");
  const fixed = query.offset !== undefined;
  const offset = Math.min(Math.max(first, fixed ? Number(query.offset) || 0 : end - PAGE), Math.max(first, end));
  const live = useLive((signal) => get(path, { offset, max_records: PAGE, max_bytes: 4 << 20 }, signal), [offset]);
  const records = live.data?.records ?? [];
  const shown = Number(query.open); // it has an offset in the address, too: newer records do not move it away
  const open = (one) => change({ partition: partition.partition, offset, open: shown === one ? undefined : one });
  const rows = records.map((record) => [
    html`<${Opener} open=${shown === record.offset} onPress=${() => open(record.offset)}>${num(record.offset)}<//>`,
    html`<${Time} ms=${record.timestamp_ms} />`, html`<span class="cut">${keyOf(record)}</span>`,
    html`<code class="cut long">${brief(record)}</code>`,
  ]);
  const turn = (next) => change({ partition: partition.partition, offset: Math.max(first, next) }, false);
  return html`<${Panel} title="Records of partition ${partition.partition}" >
    <div class="bar">
      <${Field} label="Partition" value=${String(partition.partition)}
        options=${partitions.map((each) => [String(each.partition), String(each.partition)])}
          onChange=${(event) => change({ partition: event.target.value, offset: undefined, open: undefined })} />
      <${Field} label="From offset" type="number" min=${first} value=${query.offset ?? ""} placeholder=${String(offset)}
        onChange=${(event) => change({ partition: partition.partition, offset: event.target.value })} />
      <${Field} label="From time" type="datetime-local" step="1"
        onChange=${async (event) => event.target.value && turn(await offsetAt(path, new Date(event.target.value).getTime(), first, end))} />
      <div class="row"><button type="button" onClick=${() => turn(first)}>Oldest</button>
      <button type="button" onClick=${() => turn(offset - PAGE)} disabled=${offset <= first}>Earlier</button>
        <button type="button" onClick=${() => turn(live.data?.next_offset ?? offset)}
          disabled=${!live.data || live.data.next_offset >= end}>Later</button>
        <button type="button" aria-pressed=${!fixed} onClick=${() => change({ offset: undefined }, false)}>Newest</button></div></div>
    <${Notice} of=${live} /><${Waiting} of=${live} />
    ${live.data && html`<${Table} label="Records" columns=${["#Offset", "Time", "Key", "Value"]} rows=${rows} none="No record here."
      details=${(row) => shown === records[row].offset && html`<${Value} record=${records[row]} />
        <${Life} topic=${topic} partition=${partition.partition} offset=${shown} />`} />`}
    <${Shell} cli=${command("topics", "read", topic, "--partition", partition.partition, "--offset", offset, "--max-records", PAGE)}
      curl=${curl("GET", path, undefined, { offset, max_records: PAGE })} /><//>`;
}

// The newest records with a key. `places`: what is not read yet of each partition; their ends are read in turn, until
// there is a record or enough was read.
async function withKey(topic, key, places) {
  const all = places ? [] : (await get(at("topics", topic))).partitions;
  const left = places ?? all.map((each) => ({ partition: each.partition, first: each.log_start_offset, end: each.log_end_offset }));
  const found = [];
  for (let read = 0; read < LOOKS && left.length > 0 && found.length === 0; read++) {
    const { partition, first, end } = left.shift(), from = Math.max(first, end - LOOKED);
    for (let offset = from; offset < end;) {
      const page = await get(at("topics", topic, "partitions", partition, "records"), { offset, max_records: end - offset,
        max_bytes: 4 << 20 });
      const fits = (record) => record.key === key && record.offset < end; // a page goes on behind gaps of compaction
      found.push(...page.records.filter(fits).map((record) => ({ ...record, partition })));
      offset = Math.max(offset + 1, page.next_offset);
    }
    if (from > first) left.push({ partition, first, end: from });
  }
  return { found: found.reverse(), left };
}

function ByKey({ topic }) {
  const [key, set] = useState("");
  const [{ busy, found, left = [], fault }, show] = useState({});
  const look = async (event, places) => {
    event.preventDefault();
    show({ busy: true });
    show(await withKey(topic, key, places).catch((fault) => ({ fault })));
  };
  const rows = (found ?? []).map((record) => [html`<${Link} names=${["topics", topic]}
    query=${{ partition: record.partition, offset: record.offset, open: record.offset }}>${record.partition} at ${num(record.offset)}<//>`,
    html`<${Time} ms=${record.timestamp_ms} />`, html`<code class="cut long">${brief(record)}</code>`]);
  return html`<${Panel} title="Find by key"><form class="bar" onSubmit=${look}>
    <${Field} label="Key" value=${key} readonly=${busy} onInput=${(event) => { set(event.target.value); show({}); }} />
    <button disabled=${key === "" || busy}>Find</button>
    ${left.length > 0 && html`<button type="button" onClick=${(event) => look(event, left)}>Look in older ones</button>`}</form>
    ${fault && html`<p class="notice bad">${fault.words ?? fault.message}</p>`}
    ${found && html`<${Table} label="Records with the key" columns=${["Partition, offset", "Time", "Value"]} rows=${rows}
      none=${left.length ? "None of the newest records has this key." : "No record has this key."} />`}<//>`;
}

// What a group has done with a record, or with all records of a key: the group's page shows it.
function Life({ topic, partition, offset }) {
  const [group, set] = useState("");
  return html`<form class="row" onSubmit=${(event) => { event.preventDefault(); if (group) go(to(["groups", group],
    { topic, partition, offset })); }}>
    <${Field} label="What has this group done with it?" value=${group} placeholder="group"
      onInput=${(event) => set(event.target.value.trim())} /><button>Look up</button></form>`;
}

function Produce({ topic, count, done }) {
  const [form, set] = useState({ value: "{}", key: "", headers: "", partition: "" });
  const input = (name) => ({ value: form[name], onInput: (event) => set({ ...form, [name]: event.target.value }) });
  const path = at("topics", topic, "records");
  // The value goes as it was typed: a number with many digits keeps them.
  const body = () => {
    JSON.parse(form.value);
    const more = { ...(form.key && { key: form.key }), ...(form.partition && { partition: Number(form.partition) }),
      ...(form.headers && { headers: JSON.parse(form.headers) }) };
    return `{"records":[{${JSON.stringify(more).slice(1, -1)}${Object.keys(more).length ? "," : ""}"value":${form.value}}]}`;
  };
  const shown = () => { try { return body(); } catch { return undefined; } };
  const run = async () => {
    const [record] = (await call("POST", path, { body: body() })).records;
    done();
    return `Produced to partition ${record.partition} at offset ${num(record.offset)}.`;
  };
  const cli = () => `printf '%s\\n' ${quoted(form.value.replace(/\s*\n\s*/g, " "))} | ${command("produce", topic, "--json-lines",
    form.key ? ["--key", form.key] : [], form.partition ? ["--partition", form.partition] : [],
    Object.entries(JSON.parse(form.headers || "{}")).flatMap(([name, text]) => ["--header", `${name}=${text}`]))}`;
  return html`<${Panel} title="Produce one record">
    <${Act} label="Produce" kind="main" disabled=${!shown()} run=${run} shell=${shown() && { cli: cli(), curl: curl("POST", path, body()) }}>
    <div class="bar"><${Field} label="Key" ...${input("key")} />
    <${Field} label="Partition" type="number" min="0" max=${count - 1} placeholder="by key" ...${input("partition")} />
    <${Field} label="Headers, as JSON" placeholder='{"name":"text"}' ...${input("headers")} />
    <${Field} label="Value, as JSON" rows="4" wide=${true} ...${input("value")} /></div><//><//>`;
}

function Delete({ topic, id, partition, done }) {
  const [text, set] = useState("");
  const number = partition.partition, before = Math.min(Number(text), partition.log_end_offset);
  const path = at("topics", topic, "delete-records"), body = { partitions: [{ partition: number, before_offset: before }], topic_id: id };
  const ask = async () => {
    const now = (await get(at("topics", topic))).partitions.find((each) => each.partition === number);
    const count = Math.max(0, Math.min(before, now.log_end_offset) - now.log_start_offset);
    const what = `${many(count, "offset")} of partition ${number}, from ${num(now.log_start_offset)} on`;
    return { text: `${what}, would be deleted for every group. Nobody can bring them back.`, confirm: count && `Delete ${num(count)}` };
  };
  const run = async () => {
    const [result] = (await call("POST", path, { body })).partitions;
    done();
    return `Deleted. Partition ${number} begins at offset ${num(result.log_start_offset)}.`;
  };
  return html`<${Panel} title="Delete old records"><${Act} subject=${text} label="Count them" ask=${ask} run=${run} disabled=${text === ""}
      shell=${text !== "" && { cli: command("topics", "delete-records", topic, `${number}:${before}`), curl: curl("POST", path, body) }}>
    <${Field} label="Delete what is before this offset of partition ${number}" type="number" min="0" value=${text}
      onInput=${(event) => set(event.target.value)} /><//><//>`;
}
