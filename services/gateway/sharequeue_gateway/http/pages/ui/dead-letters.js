// The dead letters of a group: why they died, and the buttons that send them back or close them.
import { useState } from "./vendor/hooks.js";
import { at, call, command, curl, get, now, useLive } from "./api.js";
import { Act, Badge, Field, Link, Notice, Opener, Pages, Panel, Table, Time, Value, Waiting, brief, html, keyOf, many, num,
  useOpen, useQuery } from "./parts.js";
import { Chart } from "./chart.js";

const HOUR = 3_600_000;
const PAGE = 100;
const AT_ONCE = 1000; // records of one call, so that progress shows
const FILTERS = ["topic", "partition", "cause", "reason", "key", "after", "before", "offset"];
const CAUSES = [["", "any"], ["rejected", "rejected"], ["delivery_limit", "delivery limit"]];
const causeOf = ({ cause }) => (/reject/.test(cause) ? "rejected" : /delivery count/.test(cause) ? "delivery limit" : cause);

const momentOf = (text) => new Date(text ?? "").getTime() || undefined; // an address may have any text
const numberOf = (text) => (/^\d+$/.test(text) ? Number(text) : text); // another text is refused by the gateway
// The filter of the address, as the calls take it.
function filterOf({ topic, partition, offset, cause, reason, key, after, before }) {
  const fields = { topic, partition: numberOf(partition), offset: numberOf(offset), cause, reason, key, after_ms: momentOf(after),
    before_ms: momentOf(before) };
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined && value !== ""));
}
const options = (filter) => Object.entries(filter).flatMap(([name, value]) =>
  name.endsWith("_ms") ? [`--${name.slice(0, -3)}`, new Date(value).toISOString()] : [`--${name}`, value]);

export function DeadLetters({ name }) {
  const [query, change] = useQuery();
  const [picked, pick] = useState(new Map());
  const [shown, show] = useOpen();
  const filter = filterOf(query);
  const path = at("share-groups", name, "dead-letters");
  const closed = query.closed === "true";
  const live = useLive((signal) => get(path, { ...filter, closed, page_size: PAGE, page_token: query.page, records: true }, signal),
    [JSON.stringify(filter), closed, query.page]);
  const letters = live.data?.dead_letters ?? [];
  const idOf = (letter) => `${letter.topic} ${letter.partition} ${letter.offset} ${letter.died_at_ms}`;
  // Chosen dead letters stay chosen on other pages.
  const choose = (some, wanted) => pick((was) => {
    const next = new Map(was);
    for (const letter of some) {
      if (wanted) next.set(idOf(letter), letter);
      else next.delete(idOf(letter));
    }
    return next;
  });
  const open = letters.filter((letter) => letter.state === "open");
  const every = open.length > 0 && open.every((letter) => picked.has(idOf(letter)));
  const rows = letters.map((letter) => [
    letter.state === "open" && html`<input type="checkbox" aria-label="Choose offset ${letter.offset}" checked=${picked.has(idOf(letter))}
      onChange=${(event) => choose([letter], event.target.checked)} />`,
    html`<${Time} ms=${letter.died_at_ms} />`, html`<span title=${letter.cause}>${causeOf(letter)}</span>`,
    html`<span class="cut">${letter.reason ?? "–"}</span>`,
    html`<${Link} class="cut" names=${["groups", name]}
      query=${{ topic: letter.topic, partition: letter.partition, offset: letter.offset }}>
      ${letter.topic}/${letter.partition} at ${num(letter.offset)}<//>`,
    num(letter.delivery_count), html`<span class="cut">${keyOf(letter)}</span>`,
    html`<${Opener} open=${shown === idOf(letter)} onPress=${() => show(idOf(letter))}>
      <code class="cut">${brief(letter)}</code><//>`,
    ...(closed ? [html`<${Badge} kind=${letter.state === "open" ? "bad" : ""}>${letter.state}<//>
      ${letter.closed_at_ms ? html` <${Time} ms=${letter.closed_at_ms} />` : ""}`] : []), // without closed ones all are open
  ]);
  const done = () => { pick(new Map()); live.refresh(); };
  return html`<div class="title"><h1><span class="kind">Dead letters of</span> <${Link} names=${["groups", name]}>${name}<//></h1></div>
    <${Causes} group=${name} letters=${letters} more=${live.data?.next_page_token} change=${change} />
    <${Filters} query=${query} change=${change} closed=${closed} />
    <div class="pair"><${Settle} group=${name} verb="redrive" picked=${[...picked.values()]} all=${filter} done=${done} />
    <${Settle} group=${name} verb="drop" picked=${[...picked.values()]} all=${filter} done=${done} /></div>
    <${Panel} title="Dead letters" side=${html`<span class="dim">
    ${many(letters.length, "dead letter")} on this page${picked.size ? `, ${num(picked.size)} chosen` : ""}</span>`}>
      <${Notice} of=${live} /><${Waiting} of=${live} />${live.data?.unauthorized_count > 0 && html`<p class="notice">
      ${many(live.data.unauthorized_count, "dead letter")} of topics that your key may not read.</p>`}
      ${open.length > 0 && html`<label class="check">
        <input type="checkbox" checked=${every} onChange=${() => choose(open, !every)} /> all on this page</label>`}
      ${live.data && html`<${Table} label="Dead letters"
        columns=${["", "Died", "Cause", "Reason", "Record", "#Deliveries", "Key", "Value", ...(closed ? ["State"] : [])]} rows=${rows}
          none="No dead letter fits."
        details=${(row) => shown === idOf(letters[row]) && html`<${Reasons} letter=${letters[row]} />
          <${Value} record=${letters[row]} />`} />`}
      <${Pages} next=${live.data?.next_page_token} shown=${query.page} onPage=${(page) => change({ page }, false)} /><//>`;
}

const Reasons = ({ letter }) => html`<ol class="events">${(letter.reasons ?? []).map(({ reason, at_ms }) => html`<li>
  <${Time} ms=${at_ms} /> <span><q>${reason}</q></span></li>`)}</ol>`;

function Filters({ query, change, closed }) {
  const input = (name) => ({ value: query[name] ?? "",
    onChange: (event) => change({ [name]: event.target.value, page: undefined, offset: undefined }) });
  const remove = () => change(Object.fromEntries([...FILTERS, "page"].map((name) => [name, undefined])));
  return html`<${Panel} title="Filter" side=${FILTERS.some((name) => query[name])
    && html`<button type="button" onClick=${remove}>Remove the filter</button>`}>
    <div class="bar"><${Field} label="Topic" ...${input("topic")} />
    <${Field} label="Partition" type="number" min="0" ...${input("partition")} />
    <${Field} label="Cause" options=${CAUSES} ...${input("cause")} /><${Field} label="Reason contains" ...${input("reason")} />
      <${Field} label="Key" ...${input("key")} /><${Field} label="Died at or after" type="datetime-local" ...${input("after")} />
      <${Field} label="Died before" type="datetime-local" ...${input("before")} />
      <label class="check"><input type="checkbox" checked=${closed}
        onChange=${() => change({ closed: closed ? undefined : "true", page: undefined })} /> also closed ones</label></div>
    ${query.offset !== undefined && html`<p class="dim">Only the record at offset ${query.offset}.</p>`}<//>`;
}

// By cause over a day, and by the reasons of this page: a press on a reason filters by it.
function Causes({ group, letters, more, change }) {
  const from = Math.floor((now() - 24 * HOUR) / HOUR) * HOUR;
  const live = useLive(async (signal) => {
    const hours = new Map();
    for (let token, page = 0; page < 5 && (token || page === 0); page++) {
      const answer = await get(at("reports", "activity"), { group_id: group, from_ms: from, page_token: token }, signal);
      for (const entry of answer.activity) for (const { cause, records } of entry.dead_letters ?? []) {
        const hour = hours.get(entry.hour_ms) ?? { at_ms: entry.hour_ms + HOUR };
        hour[cause] = (hour[cause] ?? 0) + records;
        hours.set(entry.hour_ms, hour);
      }
      token = answer.next_page_token;
    }
    return [...hours.values()].sort((one, other) => one.at_ms - other.at_ms);
  }, [group], 30_000);
  const reasons = new Map();
  for (const { reason = "", died_at_ms: at } of letters) {
    const { count, first, last } = reasons.get(reason) ?? { count: 0, first: at, last: at };
    reasons.set(reason, { count: count + 1, first: Math.min(first, at), last: Math.max(last, at) });
  }
  const most = [...reasons].sort(([, one], [, other]) => other.count - one.count).slice(0, 6), top = most[0]?.[1].count ?? 1;
  return html`<${Panel} title="Why they died"><div class="pair">
    <${Chart} title="Dead letters an hour" bars=${true} points=${live.data ?? []} from=${from} to=${from + 25 * HOUR} step=${HOUR}
      series=${[{ name: "rejected", value: (point) => point.rejected, kind: "c-bad" },
        { name: "delivery limit", value: (point) => point.delivery_limit, kind: "c-warn" }]} />
    <div><h3>Reasons on this page${more ? "; another page follows" : ""}</h3><ul class="ranks">${most.map(([reason, { count, first, last }]) => html`<li>
    <svg width="70" height="8" aria-hidden="true"><rect class="of" width="70" height="8" rx="2" />
    <rect width=${(70 * count) / top} height="8" rx="2" /></svg><b>${num(count)}</b>
      ${reason ? html`<button type="button" class="link cut" onClick=${() => change({ reason, page: undefined })}>${reason}
        </button>` : html`<span class="dim">no reason given</span>`}
      <span class="dim"><${Time} ms=${first} />${last > first && html` to <${Time} ms=${last} />`}</span></li>`)}</ul></div></div><//>`;
}

function Settle({ group, verb, picked, all, done }) {
  const [target, aim] = useState("retry");
  const [most, bound] = useState("");
  const redrive = verb === "redrive";
  const path = at("share-groups", group, "dead-letters", verb);
  const filters = picked.length ? picked.map(({ topic, partition, offset }) => ({ topic, partition, offset })) : [all];
  const bodies = filters.map((filter) => ({ ...filter, ...(redrive && { to: target }) }));
  const limit = picked.length || most === "" ? Infinity : Number(most);
  // Pages of each call, until the limit. A page ends where the gateway has looked far enough, also with nothing.
  const settle = async (dry, progress, limit) => {
    let sum = 0, skipped = 0;
    for (const body of bodies) {
      let token;
      do {
        const left = limit - sum;
        if (left <= 0) return [sum, skipped];
        const answer = await call("POST", path, { body: { ...body, max_records: Math.min(left, dry ? 100_000 : AT_ONCE),
          page_token: token ?? null, dry_run: dry } });
        sum += dry ? answer.matched : (answer.redriven ?? answer.dropped);
        skipped += answer.skipped_count ?? 0;
        token = answer.next_page_token;
        progress?.(`${dry ? "Counting" : redrive ? "Sending back" : "Dropping"}: ${num(sum)} so far …`);
      } while (token);
    }
    return [sum, skipped];
  };
  const ask = async (progress) => {
    const [count] = await settle(true, progress, limit);
    const what = redrive ? `would go back ${target === "retry" ? "for this group alone" : "for every group of the topic"}`
      : "would be closed for good: nobody gets them again, and no redrive sends them";
    const text = count ? `${many(count, "dead letter")} ${what}.` : "No open dead letter fits.";
    return { text, count, confirm: count > 0 && `${redrive ? "Redrive" : "Drop"} ${num(count)}` };
  };
  // As many as were shown, and no more.
  const run = async (progress, asked) => {
    const [count, skipped] = await settle(false, progress, asked.count);
    done();
    return `${many(count, "dead letter")} ${redrive ? "sent back" : "dropped"}${skipped ? `; ${num(skipped)} had no record to send` : ""}.`;
  };
  const scope = picked.length ? `${many(picked.length, "chosen dead letter")}` : "all that fit the filter";
  const cli = filters.map((filter) => command("dead-letters", verb, group, options(filter), redrive && target !== "retry" ? ["--to", target]
    : [], limit < Infinity ? ["--max-records", limit] : [])).join("\n");
  return html`<${Panel} title=${redrive ? "Send back" : "Drop"}>
    <${Act} subject=${JSON.stringify([bodies, most])} label="Count ${scope}" kind=${redrive ? "main" : ""} ask=${ask} run=${run}
      shell=${{ cli, curl: bodies.map((body) => curl("POST", path,
        { ...body, ...(limit < Infinity && { max_records: limit }) })).join("\n") }}>
    <div class="bar">${redrive && html`<${Field} label="For" value=${target}
      options=${[["retry", "this group alone"], ["source", "every group of the topic"]]} onChange=${(event) => aim(event.target.value)} />`}
      ${!picked.length && html`<${Field} label="At most" type="number" min="1" value=${most} placeholder="all"
        onInput=${(event) => bound(event.target.value)} />`}</div><//><//>`;
}
