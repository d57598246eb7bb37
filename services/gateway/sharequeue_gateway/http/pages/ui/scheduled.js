// Records that wait for their time, and schedules that make one record at each of their times: of all topics, or of one.
import { at, call, command, curl, get, useLive } from "./api.js";
import { Act, Badge, Field, Link, Notice, Opener, Pages, Panel, Table, Time, Value, Waiting, bytes, distance, html, many, num,
  useOpen, useQuery } from "./parts.js";

export function Scheduled() {
  const [query, change] = useQuery();
  const topic = query.topic ?? "";
  return html`<h1>Scheduled</h1><div class="bar"><${Field} label="Topic" placeholder="all topics" value=${topic}
      onChange=${(event) => change({ topic: event.target.value, waiting: undefined }, false)} /></div>
    ${topic ? html`<p><${Link} names=${["topics", topic]}>Topic ${topic}<//> · <${Link} names=${["scheduled"]}>All topics<//></p>
      <${Waiters} key="w ${topic}" topic=${topic} /><${Periodic} key="p ${topic}" topic=${topic} />`
      : html`<${Waiters} key="all" /><p class="dim">A paused schedule is not due: its topic shows it.</p>`}`;
}

// What waits, the next one due first: the records of a topic; without one, records and schedules of all topics.
export function Waiters({ topic }) {
  const [query, change] = useQuery();
  const [shown, show] = useOpen();
  const path = topic ? at("topics", topic, "scheduled") : at("scheduled");
  const live = useLive((signal) => get(path, { page_size: 50, page_token: query.waiting }, signal), [query.waiting]);
  const waiting = live.data?.scheduled ?? live.data?.due ?? [];
  const idOf = (record) => record.schedule_id ?? `${record.topic}/${record.name}`;
  const rows = waiting.map((record) => {
    const id = idOf(record), open = shown === id;
    return [html`<${Time} ms=${record.deliver_at_ms} /> <span class="dim">${distance(record.deliver_at_ms)}</span>`,
      ...(topic ? [] : [html`<${Link} names=${["scheduled"]} query=${{ topic: record.topic }}>${record.topic}<//>`]),
      record.key ?? "–", num(record.partition), bytes(record.bytes), html`<${Opener} open=${open}
        onPress=${() => show(id)}>${record.name ?? html`<code>${id}</code>`}<//>`];
  });
  const below = (row) => {
    const record = waiting[row], of = topic ?? record.topic;
    if (shown !== idOf(record)) return null;
    return record.name ? html`<${Schedule} topic=${of} schedule=${record} done=${live.refresh} />`
      : html`<${Waiter} topic=${of} id=${record.schedule_id} done=${live.refresh} />`;
  };
  return html`<${Panel} title=${topic ? "Waiting for their time" : "Due next"} side=${live.data?.scheduled && html`<span class="dim">
    ${many(live.data.scheduled_count, "record")}</span>`}><${Notice} of=${live} /><${Waiting} of=${live} />
    ${live.data && html`<${Table} label="What waits for its time" columns=${["Due", ...(topic ? [] : ["Topic"]), "Key", "#Partition",
      "#Size", topic ? "Id" : "Schedule, or id"]} rows=${rows} details=${below} none="Nothing here waits for its time." />`}
    <${Pages} next=${live.data?.next_page_token} shown=${query.waiting} onPage=${(waiting) => change({ waiting }, false)} /><//>`;
}

function Waiter({ topic, id, done }) {
  const body = { schedule_ids: [id] }, cancel = at("topics", topic, "cancel-scheduled");
  const run = async () => {
    const { cancelled } = await call("POST", cancel, { body });
    done();
    return cancelled.length ? "Cancelled." : "It was too late: it is in the log already.";
  };
  return html`<${Act} label="Cancel this record"
    ask=${async () => ({ text: "The record would never enter the log.", confirm: "Cancel the record" })} run=${run}
      shell=${{ cli: command("scheduled", "cancel", topic, id), curl: curl("POST", cancel, body) }} />`;
}

export function Periodic({ topic }) {
  const [shown, show] = useOpen();
  const live = useLive((signal) => get(at("topics", topic, "schedules"), {}, signal), [topic]);
  const schedules = live.data?.schedules ?? [];
  const rows = schedules.map((schedule) => [
    html`<${Opener} open=${shown === schedule.name} onPress=${() => show(schedule.name)}>
      ${schedule.name}<//>`,
    html`<code>${schedule.cron}</code> <span class="dim">${schedule.time_zone}</span>`,
    schedule.paused ? html`<${Badge} kind="warn">paused<//>` : html`<${Time} ms=${schedule.next_at_ms} /> <span class="dim">
      ${distance(schedule.next_at_ms)}</span>`, html`<${Time} ms=${schedule.last_at_ms} />`, num(schedule.partition),
  ]);
  return html`<${Panel} title="Schedules"><${Notice} of=${live} />
    ${live.data && html`<${Table} label="Schedules" columns=${["Name", "Times", "Next", "Last", "#Partition"]} rows=${rows}
      none="This topic has no schedule."
    details=${(row) => shown === schedules[row].name && html`<${Schedule} topic=${topic} schedule=${schedules[row]}
      done=${live.refresh} />`} />`}<//>`;
}

function Schedule({ topic, schedule, done }) {
  const path = at("topics", topic, "schedules", schedule.name), name = schedule.name;
  const live = useLive((signal) => get(path, {}, signal), [path], 60_000);
  const after = (text) => { done(); return text; };
  const pause = { paused: !schedule.paused };
  const run = async () => {
    const { partition, made_offset } = await call("PATCH", path, { body: { run: true } });
    return after(`Made the record at offset ${num(made_offset)} of partition ${partition}.`);
  };
  return html`<${Notice} of=${live} />${live.data && html`<${Value} record=${live.data} />`}<div class="pair">
    <${Act} label="Run now" ask=${async () => ({ text: "The schedule would make one record now, beside those of its times.",
      confirm: "Make the record" })} run=${run} shell=${{ cli: command("schedules", "run", topic, name),
      curl: curl("PATCH", path, { run: true }) }} />
    <${Act} subject=${schedule.paused} label=${schedule.paused ? "Resume" : "Pause"}
      run=${async () => after((await call("PATCH", path, { body: pause }))
        && (pause.paused ? "Paused." : "It goes on with its next time."))}
          shell=${{ cli: command("schedules", pause.paused ? "pause" : "resume", topic, name), curl: curl("PATCH", path, pause) }} />
    <${Act} label="Delete" ask=${async () => ({ text: "The schedule would make no record any more. Those that it has made stay.",
      confirm: "Delete the schedule" })} run=${async () => { await call("DELETE", path); return after("Deleted."); }}
        shell=${{ cli: command("schedules", "delete", topic, name), curl: curl("DELETE", path) }} /></div>`;
}
