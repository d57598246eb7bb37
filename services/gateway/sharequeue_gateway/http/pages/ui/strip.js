// The window of a group in one partition as a strip: each cell is a range of offsets, coloured by what the group does
// with its records. A press on a cell zooms in, down to single records; a press on a record shows its life.
import { useState } from "./vendor/hooks.js";
import { at, command, curl, get, members, useLive } from "./api.js";
import { Notice, Panel, Shell, clock, distance, html, many, num, useQuery } from "./parts.js";
import { useWidth } from "./chart.js";

// From the bottom of a cell to its top: the class of the colour, and the words.
export const STATES = {
  finished: "finished",
  acknowledged: "accepted",
  archived: "finished, not accepted",
  archiving: "dead letter being written",
  pending: "pending in a transaction",
  acquired: "held",
  delayed: "delayed",
  available: "ready to be delivered again",
  unread: "not read yet",
  new: "never fetched",
};
const HEIGHT = 72, CELL = 7, SHADES = 4, LEAST = 10;

export function Strip({ group, topic, partition }) {
  const [query, change] = useQuery();
  const [element, width] = useWidth(260);
  const [cursor, point] = useState();
  const cells = Math.min(200, Math.max(30, Math.floor(width / CELL)));
  const path = at("share-groups", group, "topics", topic, "partitions", partition, "window");
  const chosen = query.offset === undefined ? undefined : Number(query.offset);
  const asked = rangeOf(query, chosen, cells);
  const live = useLive(async (signal) => {
    if (!width) return undefined;
    const seen = await get(path, { ...asked, buckets: cells }, signal);
    return { ...seen, to_offset: Math.max(seen.from_offset, Math.min(asked.to_offset ?? Infinity, seen.log_end_offset)) };
  }, [asked.from_offset, asked.to_offset, cells, width > 0], 5000);
  const view = live.data;
  const spanOf = ({ from_offset, to_offset }) => to_offset - from_offset;
  const move = (from, to) => {
    const low = Math.max(view.log_start_offset, Math.floor(from));
    const high = Math.min(Math.max(view.log_end_offset, low + LEAST), Math.ceil(to));
    change({ topic, partition, from: Math.min(low, high - 1), to: high, offset: undefined });
  };
  const pan = (share) => move(view.from_offset + spanOf(view) * share, view.to_offset + spanOf(view) * share);
  const zoom = (times, middle = (view.from_offset + view.to_offset) / 2) => {
    const half = Math.max(LEAST, spanOf(view) * times) / 2;
    move(middle - half, middle + half);
  };
  const open = (index) => {
    const first = view.from_offset + index * view.bucket_size;
    if (view.bucket_size === 1) change({ topic, partition, offset: first, from: view.from_offset, to: view.to_offset }, false);
    else zoom((view.bucket_size * 10) / spanOf(view), first + view.bucket_size / 2);
  };
  const tools = view && html`<div class="row" role="group" aria-label="Zoom">
      <button type="button" onClick=${() => zoom(0.25)} disabled=${spanOf(view) <= LEAST}>Zoom in</button>
      <button type="button" onClick=${() => zoom(4)}>Zoom out</button>
      <button type="button" aria-label="Earlier offsets" onClick=${() => pan(-0.5)}>◀</button>
      <button type="button" aria-label="Later offsets" onClick=${() => pan(0.5)}>▶</button>
      <button type="button" onClick=${() => change({ topic, partition, from: undefined, to: undefined, offset: undefined })}>Window</button>
      <button type="button" onClick=${() => move(view.log_start_offset, view.log_end_offset)}>Whole log</button></div>`;
  return html`<${Panel} title="Window of partition ${partition} of ${topic}" side=${tools}>
    <${Notice} of=${live} /><div class="strip" ref=${element}>${view && width > 0 && html`<${Cells} ...${{ view, width, chosen, cursor, point, open, zoom }} />`}</div>
    ${view && html`<${Legend} view=${view} />`}
    <${Shell} cli=${command("groups", "window", group, topic, members({ partition, ...asked, buckets: cells }))}
      curl=${curl("GET", path, undefined, { ...asked, buckets: cells })} /><//>`;
}

// What the address asks for: a range, or the neighbours of one record, or the whole window.
function rangeOf({ from, to }, chosen, cells) {
  if (from !== undefined && to !== undefined) return { from_offset: Number(from), to_offset: Number(to) };
  if (chosen === undefined) return {};
  const low = Math.max(0, chosen - Math.floor(cells / 2));
  return { from_offset: low, to_offset: low + cells };
}

const sized = (bucket) => Object.keys(STATES).filter((state) => bucket[state] > 0);

function words(view, index) {
  const bucket = view.buckets[index], first = view.from_offset + index * view.bucket_size;
  const last = Math.min(view.to_offset, first + view.bucket_size) - 1;
  const one = view.bucket_size === 1, till = (ms) => (ms ? ` until ${clock(ms)} (${distance(ms)})` : "");
  const parts = sized(bucket).map((state) => {
    const count = one ? STATES[state] : `${num(bucket[state])} ${STATES[state]}`;
    if (state === "delayed") return count + till(bucket.available_at_ms);
    if (state !== "acquired") return count;
    return `${count} by ${bucket.member_id ?? "several members"}${one ? "" : ", the first"}${till(bucket.lock_expires_at_ms)}`;
  });
  return `${first === last ? `Offset ${num(first)}` : `Offsets ${num(first)} to ${num(last)}`}: ${parts.join("; ")}`;
}

function Cells({ view, width, chosen, cursor, point, open, zoom }) {
  const count = view.buckets.length, wide = width / Math.max(1, count), gap = wide > 5 ? 1 : 0;
  const holders = new Map();
  const shade = (member) => {
    if (member === undefined) return "s-acquired";
    if (!holders.has(member)) holders.set(member, holders.size % SHADES);
    return `s-acquired m${holders.get(member)}`;
  };
  const drawn = view.buckets.map((bucket, index) => {
    const states = sized(bucket), all = states.reduce((sum, state) => sum + bucket[state], 0);
    let low = HEIGHT;
    return states.map((state) => {
      const high = Math.max(3, (bucket[state] / all) * HEIGHT);
      low -= high;
      return html`<rect class=${state === "acquired" ? shade(bucket.member_id) : `s-${state}`} x=${index * wide} y=${Math.max(0, low)}
        width=${Math.max(1, wide - gap)} height=${high} />`;
    });
  });
  const press = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, PageDown: 10, PageUp: -10, Home: -count, End: count }[event.key];
    if (step) point(Math.max(0, Math.min(count - 1, (cursor ?? (step > 0 ? -1 : count)) + step)));
    else if (event.key === "Enter" && cursor !== undefined) open(cursor);
    else if (event.key === "+") zoom(0.25, cursor === undefined ? undefined : view.from_offset + (cursor + 0.5) * view.bucket_size);
    else if (event.key === "-") zoom(4);
    else return;
    event.preventDefault();
  };
  const under = (event) => Math.max(0, Math.min(count - 1,
    Math.floor((event.clientX - event.currentTarget.getBoundingClientRect().left) / wide)));
  const at = (offset) => ((offset - view.from_offset) / view.bucket_size) * wide;
  const low = view.log_start_offset, all = Math.max(1, view.log_end_offset - low);
  const share = (offset) => ((Math.min(Math.max(offset, low), view.log_end_offset) - low) / all) * width;
  const here = cursor !== undefined && cursor < count ? cursor : undefined;
  const middle = Math.floor((view.from_offset + view.to_offset) / 2);
  const text = here === undefined ? `${num(view.from_offset)} to ${num(view.to_offset)}` : words(view, here);
  const size = view.bucket_size === 1 ? "a cell for each" : `${num(view.bucket_size)} in a cell`;
  const away = view.loaded ? "" : " No gateway has this partition of the group in use: what was settled behind its start is not shown.";
  return html`<svg class="map" width=${width} height="10" aria-hidden="true">
      <rect class="all" width=${width} y="3" height="4" rx="2" /><rect class="done" width=${share(view.start_offset)} y="3" height="4" rx="2" />
      <rect class="seen" x=${Math.min(share(view.from_offset), width - 4)} y="1" height="8" rx="2"
        width=${Math.max(4, share(view.to_offset) - share(view.from_offset))} /></svg>
    <div class="cells" role="slider" tabindex="0" aria-label="Offsets by state. Arrow keys move, Enter opens, + and - zoom."
      aria-valuemin=${view.from_offset} aria-valuemax=${view.to_offset} aria-valuenow=${view.from_offset + (here ?? 0) * view.bucket_size}
      aria-valuetext=${text} onKeyDown=${press} onPointerMove=${(event) => point(under(event))} onPointerLeave=${() => point(undefined)}
      onClick=${(event) => count && open(under(event))}>
      <svg width=${width} height=${HEIGHT + 8} aria-hidden="true">
        <defs><pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
          <rect class="h0" width="5" height="5" /><rect class="h1" width="2" height="5" /></pattern></defs>
        ${drawn}
        ${here !== undefined && html`<rect class="here" x=${here * wide} y="0.5" width=${Math.max(2, wide - gap)} height=${HEIGHT - 1} />`}
        ${chosen >= view.from_offset && chosen < view.to_offset && html`<path class="chosen" d="M${at(chosen + 0.5)},${HEIGHT} l5,8 h-10 z" />`}
      </svg></div>
    <div class="scale"><span>${num(view.from_offset)}</span><span>${num(middle)}</span><span>${num(view.to_offset)}</span></div>
    <p class="read">${here === undefined
      ? html`<span class="dim">${many(view.to_offset - view.from_offset, "offset")}, ${size}.${away}</span>` : text}</p>`;
}

function Legend({ view }) {
  const sums = {};
  for (const bucket of view.buckets) for (const state of sized(bucket)) sums[state] = (sums[state] ?? 0) + bucket[state];
  const shown = Object.keys(STATES).filter((state) => sums[state]);
  return html`<ul class="legend">${shown.map((state) => html`<li>
    <svg width="12" height="12" aria-hidden="true"><rect class="s-${state}" width="12" height="12" rx="2" /></svg>
    ${STATES[state]} <b>${num(sums[state])}</b></li>`)}</ul>`;
}
