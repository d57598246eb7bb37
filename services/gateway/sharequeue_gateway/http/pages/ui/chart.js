// Lines over time, as SVG: the style sheet gives their colours, so they follow light and dark.
import { useEffect, useRef, useState } from "./vendor/hooks.js";
import { clock, html, short, span } from "./parts.js";

const HEIGHT = 132, LEFT = 44, BOTTOM = 20, TOP = 8;
const STEPS = [1, 2, 5];
const MINUTE = 60_000;
const TICKS = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880].map((minutes) => minutes * MINUTE);

const TIMES = [1, 2, 10, 20, 60, 120, 240, 600, 1200, 3600, 7200, 14_400, 36_000, 86_400, 172_800, 345_600].map((s) => s * 1000);

// The least of 1, 2, 5 × 10^n that is not below `value`.
function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1e-9)));
  return (STEPS.find((step) => step * power >= value) ?? 10) * power;
}

export function useWidth(least = 280) {
  const [width, set] = useState(0);
  const element = useRef();
  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => set(Math.max(least, Math.floor(entry.contentRect.width))));
    watch.observe(element.current);
    return () => watch.disconnect();
  }, []);
  return [element, width];
}

// A line is cut where a point has no value, or where a step was left out.
function paths(points, value, x, y, gap) {
  let line = "", last = -Infinity;
  for (const point of points) {
    const now = value(point);
    if (now === undefined) continue;
    line += `${point.at_ms - last > gap ? "M" : "L"}${x(point.at_ms).toFixed(1)},${y(now).toFixed(1)}`;
    last = point.at_ms;
  }
  return line;
}

// `points`: ascending by `at_ms`. `series`: `{ name, value(point), kind }`. `form`: of a value, in words.
export function Chart({ title, points, series, from, to, step, form = short, bars = false }) {
  const [element, width] = useWidth();
  const [hover, set] = useState();
  const values = points.flatMap((point) => series.map((each) => each.value(point)).filter((value) => value !== undefined));
  const most = Math.max(1, ...values), top = (form === span && TIMES.find((each) => each >= most)) || ceiling(most), right = width - 6, low = HEIGHT - BOTTOM;
  const x = (ms) => LEFT + ((Math.min(ms, to) - from) / Math.max(1, to - from)) * (right - LEFT);
  const y = (value) => low - (value / top) * (low - TOP);
  const tick = TICKS.find((each) => (to - from) / each <= Math.max(2, width / 110)) ?? TICKS.at(-1);
  const offset = new Date(from).getTimezoneOffset() * MINUTE;
  const times = [];
  for (let ms = Math.ceil((from - offset) / tick) * tick + offset; ms <= to; ms += tick) if (x(ms) > LEFT + 14
    && x(ms) < right - 12) times.push(ms);
  const last = points.findLast((point) => !point.open || series.some((each) => each.value(point) !== undefined));
  const nearest = hover === undefined ? last
    : points.reduce((best, point) => (Math.abs(point.at_ms - hover) < Math.abs(best.at_ms - hover) ? point : best), points[0]);
  const move = (event) => {
    const across = event.clientX - event.currentTarget.getBoundingClientRect().left;
    set(from + ((across - LEFT) / (right - LEFT)) * (to - from));
  };
  const said = nearest ? series.map((each) => `${each.name} ${form(each.value(nearest) ?? -1)}`).join(", ") : "nothing yet";
  const label = (ms) => (tick >= 1440 * MINUTE ? new Date(ms).toLocaleDateString("en-GB", { day: "numeric", month: "short" })
    : clock(ms).slice(-8, -3));
  const bar = Math.max(2, ((right - LEFT) * step) / Math.max(1, to - from) - 2);
  return html`<figure class="chart" ref=${element}><figcaption><strong>${title}</strong>
      ${series.map((each) => html`<span class="key ${each.kind}"><i></i>${each.name} <b>${nearest ? form(each.value(nearest) ?? -1) : "–"}
        </b></span>`)}
      <span class="when">${hover !== undefined && nearest ? clock(nearest.at_ms) : ""}</span></figcaption>
    ${width > 0 && html`<svg width=${width} height=${HEIGHT} role="img" aria-label="${title}, the last ${span(to - from)}: ${said}"
      onPointerMove=${points.length ? move : undefined} onPointerLeave=${() => set(undefined)}>
      ${[0, top / 2, top].map((value) => html`<line class="grid" x1=${LEFT} x2=${right} y1=${y(value)} y2=${y(value)} />
        <text x=${LEFT - 6} y=${y(value) + 4} text-anchor="end">${form(value)}</text>`)}
      ${times.map((ms) => html`<text x=${x(ms)} y=${HEIGHT - 4} text-anchor="middle">${label(ms)}</text>`)}
      ${bars
        ? points.map((point) => { let under = 0; return series.map((each) => { const value = each.value(point) ?? 0, high = under + value,
          at = y(high); const drawn = value ? html`<rect class=${each.kind} x=${x(point.at_ms - step) + 1} y=${at} width=${bar}
            height=${y(under) - at} />` : null; under = high; return drawn; }); })
        : series.map((each) => html`<path class=${each.kind} d=${paths(points, each.value, x, y, step * 2.5)} />`)}
      ${hover !== undefined && nearest && html`<line class="cross" x1=${x(nearest.at_ms)} x2=${x(nearest.at_ms)} y1=${TOP} y2=${low} />`}
    </svg>`}</figure>`;
}
export const Spark = ({ values }) => {
  const top = Math.max(1, ...values);
  return html`<svg class="spark" viewBox="0 0 100 24" preserveAspectRatio="none" aria-hidden="true">
    <path d=${values.map((value, index) => `${index ? "L"
      : "M"}${((index / Math.max(1, values.length - 1)) * 100).toFixed(1)},${(23 - (value / top) * 21).toFixed(1)}`).join("")} /></svg>`;
};
