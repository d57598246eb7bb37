// Transactions: the open ones with their age and what waits for them, those that have ended, and the abort by an operator.
import { at, call, command, curl, get, useLive } from "./api.js";
import { Act, Badge, Link, Notice, Opener, Pages, Panel, Table, Time, Waiting, html, many, num, span, useQuery } from "./parts.js";

const STATES = [["open", "Open"], ["committed", "Committed"], ["aborted", "Aborted"]];

export function Transactions() {
  const [query, change] = useQuery();
  const state = query.state ?? "open";
  const live = useLive((signal) => get(at("transactions"), { state, page_size: 100, page_token: query.page }, signal), [state, query.page]);
  const choose = (id) => change({ id: query.id === id ? undefined : id });
  const idOf = (one) => html`<${Opener} open=${query.id === one.transaction_id} onPress=${() => choose(one.transaction_id)}><code>
    ${one.transaction_id}</code><//>`;
  const listed = (state === "open" ? live.data?.transactions : live.data?.ended) ?? [];
  const below = (row) => query.id === listed[row].transaction_id && html`<${One} id=${query.id} done=${live.refresh} />`;
  const open = (live.data?.transactions ?? []).map((one) => [idOf(one), one.transactional_id ?? "–", span(one.age_ms), html`<span
    class=${one.age_ms > one.timeout_ms * 0.8 ? "bad" : ""}>${span(one.timeout_ms)}</span>`, num(one.partitions)]);
  const ended = (live.data?.ended ?? []).map((one) => [idOf(one), one.transactional_id ?? "–", html`<${Time}
    ms=${one.began_at_ms} />`, html`<${Time} ms=${one.ended_at_ms} />`, one.reason, num(one.partitions)]);
  return html`<div class="title"><h1>Transactions</h1><div class="ranges" role="group" aria-label="State">
    ${STATES.map(([name, text]) => html`<button type="button" aria-pressed=${state === name}
      onClick=${() => change({ state: name, page: undefined, id: undefined })}>${text}</button>`)}</div></div>
    <${Panel} title="${STATES.find(([name]) => name === state)?.[1] ?? state} transactions"><${Notice} of=${live} />
    <${Waiting} of=${live} />
      ${live.data && (state === "open"
        ? html`<${Table} label="Open transactions" columns=${["Transaction", "Producer", "#Age", "#Aborted after", "#Partitions"]}
          rows=${open} details=${below} none="No transaction is open." />`
        : html`<${Table} label="Ended transactions" columns=${["Transaction", "Producer", "Began", "Ended", "By", "#Partitions"]}
          rows=${ended} details=${below} none="None is kept." />`)}
      <${Pages} next=${live.data?.next_page_token} shown=${query.page} onPage=${(page) => change({ page }, false)} /><//>`;
}

function One({ id, done }) {
  const path = at("transactions", id), abort = at("transactions", id, "terminate");
  const live = useLive((signal) => get(path, {}, signal), [id]), of = live.data;
  const ask = async () => ({ text: `${many(of.partitions.length,
    "partition")} would lose what it wrote there. Its producer learns of it at its next call.`, confirm: "Abort the transaction" });
  const run = async () => {
    const { state } = await call("POST", abort, { body: {} });
    done();
    live.refresh();
    return `It is ${state}.`;
  };
  return html`<${Notice} of=${live} />${of && html`<dl class="facts"><dt>State</dt><dd>
    <${Badge} kind=${of.state === "open" ? "accent" : ""}>${of.state}<//> ${of.reason ?? ""}</dd><dt>Began</dt><dd>
    <${Time} ms=${of.began_at_ms} /></dd>
      ${of.partitions.length > 0 && html`<dt>Wrote to</dt><dd>${of.partitions.map((each) => html`<div>
        ${each.topic ? html`<${Link} names=${["topics", each.topic]} query=${{ partition: each.partition, offset: each.first_offset }}>
          ${each.topic}/${each.partition} from ${num(each.first_offset)}<//>` : each.topic_id}</div>`)}</dd>`}
      ${of.blocks?.length > 0 && html`<dt>Wait for it</dt><dd>${of.blocks.slice(0, 20).map((each) => html`<div>
        <${Link} names=${["groups", each.group_id]} query=${{ topic: each.topic, partition: each.partition }}>${each.group_id}
        <//> in ${each.topic}/${each.partition}</div>`)}</dd>`}</dl>
    ${of.state === "open" && html`<${Act} label="Abort" ask=${ask} run=${run}
      shell=${{ cli: command("transactions", "abort", id), curl: curl("POST", abort, {}) }} />`}`}`;
}
