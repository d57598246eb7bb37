// The life of one record in a group: where it is, why, since when, and what a person may do with it by hand.
import { useState } from "./vendor/hooks.js";
import { at, call, command, curl, get, members, now, useLive } from "./api.js";
import { Act, Badge, Field, Link, Notice, Panel, Shell, Time, Value, Waiting, distance, html, keyOf, many, num, span } from "./parts.js";

const SAID = {
  new: ["new", "The group has not fetched it yet.", ""],
  ready: ["ready", "It waits to be delivered again.", "good"],
  delayed: ["delayed", "It waits for its time.", "warn"],
  held: ["held", "A member holds it.", "accent"],
  pending: ["pending", "A transaction decides about it.", "accent"],
  dying: ["dying", "Its dead letter is being written.", "bad"],
  dead: ["dead", "It has a dead letter.", "bad"],
  finished: ["finished", "It was accepted, or finished without a dead letter.", "good"],
  idle: ["not in use", "No gateway has this partition of the group in use. A look-up loads it.", ""],
  skipped: ["skipped", "The group never gets it: it is no record, or its transaction was aborted, or it was sent for another group.", ""],
};

// What happened, the earliest first, as far as it is kept.
function events(life) {
  const { in_flight: range, dead_letters: letters = [] } = life;
  const list = [];
  if (life.timestamp_ms) list.push([life.timestamp_ms, "Produced"]);
  const given = letters.length ? undefined : range; // a dead letter has the same reasons
  for (const { reason, at_ms } of given?.earlier_reasons ?? []) list.push([at_ms, "Given back", reason]);
  if (given?.reason) list.push([given.reason_at_ms, "Given back", given.reason]);
  for (const letter of letters) {
    for (const { reason, at_ms } of letter.reasons ?? []) list.push([at_ms, "Given back", reason]);
    list.push([letter.died_at_ms, `Died after ${many(letter.delivery_count, "delivery", "deliveries")}: ${letter.cause}`,
      letter.reasons?.length ? undefined : letter.reason, letter.letter]);
    const closed = { redriven: "Sent back", dropped: "Dropped", finished: `Finished by ${letter.consumer_group}` };
    if (letter.closed_at_ms) list.push([letter.closed_at_ms, closed[letter.state] ?? letter.state, undefined, letter.redriven_to]);
  }
  if (life.finished_at_ms) list.push([life.finished_at_ms, `Finished by ${life.finished_by}`]);
  const lock = range?.lock_expires_at_ms, due = range?.available_at_ms;
  if (lock) list.push([lock, `The lock of ${range.member_id} ${lock > now() ? "ends" : "ended"}`]);
  if (due) list.push([due, due > now() ? "Will be delivered again" : "Its delay ended"]);
  return list.sort(([one], [other]) => (one ?? 0) - (other ?? 0));
}

export function Life({ group, topic, partition, offset, changed }) {
  const within = ["share-groups", group, "topics", topic, "partitions", partition];
  const path = at(...within, "records", offset);
  // A look-up loads what the group knows of the partition, and a page that repeats it keeps that loaded.
  const [wanted, want] = useState(false);
  const live = useLive(async (signal) => {
    const used = wanted || (await get(at(...within, "window"), { buckets: 1 }, signal)).loaded;
    return used ? get(path, {}, signal) : { state: "idle" };
  }, [path, wanted], 5000);
  const log = at("topics", topic, "partitions", partition, "records");
  const value = useLive(async (signal) => (await get(log, { offset, max_records: 1 }, signal)).records[0], [path], 60_000);
  const life = live.data, range = life?.in_flight, record = value.data?.offset === offset ? value.data : undefined;
  const [name, meaning, kind] = SAID[life?.state] ?? [life?.state, "", ""];
  const done = () => { live.refresh(); changed(); };
  const place = (where) => where && html` <${Link} names=${["topics", where.topic]}
    query=${{ partition: where.partition, offset: where.offset }}>${where.topic}/${where.partition} at ${num(where.offset)}<//>`;
  const holder = range?.member_id && html`It is held by <b>${range.member_id}</b>, whose lock ends ${distance(range.lock_expires_at_ms)}.`;
  const before = life?.unfinished_before ? ` At most ${many(life.unfinished_before, "record")} come first.` : "";
  const attempts = range && range.attempt !== range.delivery_count ? `, of which ${num(range.attempt)} count as attempts` : "";
  const gone = value.at || value.fault ? "The log does not have it any more." : "Loading …";
  return html`<${Panel} title="Record ${num(offset)} of ${topic}, partition ${partition}" side=${life && html`<${Badge} kind=${kind}>${name}<//>`}>
    <${Notice} of=${live} /><${Waiting} of=${live} />
    ${life?.state === "idle" && html`<p><button type="button" class="main" onClick=${() => want(true)}>Look it up</button></p>`}
    ${life && html`<div class="pair"><div><p>${holder || meaning}${before}</p>
        <dl class="facts"><dt>Deliveries</dt><dd>${num(range?.delivery_count ?? life.dead_letters?.at(-1)?.delivery_count)}${attempts}</dd>
          ${record && html`<dt>Key</dt><dd>${keyOf(record)}</dd>`}
          ${life.timestamp_ms && html`<dt>Age</dt><dd>${span(now() - life.timestamp_ms)}</dd>`}</dl>
        <h3>What happened</h3><ol class="events">${events(life).map(([ms, what, reason, where]) => html`<li class=${ms > now() ? "later" : ""}>
          <${Time} ms=${ms} /><span>${what}${place(where)}${reason && html`<q>${reason}</q>`}</span></li>`)}</ol></div>
      <div><h3>Value</h3>${record ? html`<${Value} record=${record} />` : html`<p class="dim">${gone}</p>`}</div></div>
      ${range && (life.state === "held" || life.state === "delayed") && html`<${Hand} key=${life.state} path=${path} group=${group}
        topic=${topic} partition=${partition} offset=${offset} life=${life} done=${done} />`}
      ${life.state === "dead" && html`<p>
        <${Link} class="button" names=${["groups", group, "dead-letters"]} query=${{ topic, partition, offset }}>To its dead letter<//>
        </p>`}`}
    <${Shell} words="This look-up in a shell" cli=${command("records", "show", group, topic, offset, members({ partition }))} curl=${curl("GET", path)} /><//>`;
}

const ACTIONS = {
  held: [["release", "Release", "to be delivered again"], ["reject", "Reject", "and make it a dead letter"],
    ["extend", "Extend its lock", ""]],
  delayed: [["deliver_now", "Deliver now", "before its time"], ["reject", "Reject", "and make it a dead letter"]],
};
function Hand({ path, group, topic, partition, offset, life, done }) {
  const [action, choose] = useState(ACTIONS[life.state][0][0]);
  const [reason, say] = useState("");
  const spoken = action === "release" || action === "reject";
  const body = { action, delivery_count: life.in_flight.delivery_count, ...(spoken && reason && { reason }) };
  const [, label, more] = ACTIONS[life.state].find(([name]) => name === action) ?? ACTIONS[life.state][0];
  const held = life.state === "held" && action !== "extend";
  const warning = held ? ` ${life.in_flight.member_id} may still be running it.` : "";
  const ask = async () => ({ text: `${label} offset ${num(offset)} ${more}.${warning}`, confirm: label });
  const run = async () => {
    const answer = await call("POST", path, { body });
    done();
    return `Done.${answer.note ? ` ${answer.member_id}: ${answer.note}.` : ""}`;
  };
  const cli = command("records", action.replace("_", "-"), group, topic, offset, members({ partition, ...body, action: undefined }));
  return html`<h3>By hand</h3><${Act} subject=${JSON.stringify(body)} label=${label} run=${run}
    ask=${action === "extend" ? undefined : ask} shell=${{ cli, curl: curl("POST", path, body) }}>
    <div class="bar"><${Field} label="Action" value=${action} onChange=${(event) => choose(event.target.value)}
        options=${ACTIONS[life.state].map(([name, text, rest]) => [name, `${text} ${rest}`])} />
      ${spoken && html`<${Field} label="Reason" maxlength="1024" value=${reason} onInput=${(event) => say(event.target.value)} />`}</div><//>`;
}
