// The settings of a topic or a group: each with its meaning, default and bounds, changed one at a time.
import { useState } from "./vendor/hooks.js";
import { at, call, command, curl, useLive } from "./api.js";
import { Act, Field, Opener, Panel, Table, html, settings, useOpen } from "./parts.js";

const plain = (text) => text.replace(/\[([^\]]+)\]\([^)]+\)/g, "$1").replaceAll("`", "");
// A length of time or a size in words: settings are in milliseconds and bytes.
const UNITS = { ms: [["d", 86_400_000], ["h", 3_600_000], ["min", 60_000], ["s", 1000]], bytes: [["GiB", 1 << 30], ["MiB", 1 << 20], ["KiB", 1024]] };
function words(name, value) {
  const unit = value > 0 && UNITS[name.split(".").at(-1)]?.find(([, size]) => value % size === 0);
  return unit ? ` (${value / unit[1]} ${unit[0]})` : "";
}
const bounds = (name, [low, high]) => (high > 1e15 ? `${low} or more` : `${low}${words(name, low)} to ${high}${words(name, high)}`);
const allowed = (name, known) => (known.choices ? known.choices.join(", ") : known.bounds ? bounds(name, known.bounds) : plain(known.form ?? ""));

// `kind`: topic or group. `values`: those in force by name. `changed`: called after a change.
export function Settings({ kind, name, values, changed }) {
  const live = useLive(() => settings(), [], 600_000);
  const [open, toggle] = useOpen();
  const names = Object.keys(values).sort();
  const known = live.data?.[kind] ?? {};
  const rows = names.map((each) => {
    const own = known[each] ?? {}, usual = (own.default ?? "").replace("<group>", name);
    return [
      html`<${Opener} open=${each === open} onPress=${() => toggle(each)}>${each}<//>`,
      html`<code class=${own.default !== undefined && usual !== values[each] ? "changed" : ""}>
        ${values[each] === "" ? "(empty)" : values[each]}</code><span class="dim">${words(each, values[each])}</span>`,
      html`<span class="dim">${usual === "" ? "(empty)" : usual}${words(each, usual)}</span>`,
      html`<span class="dim">${allowed(each, own) ?? ""}</span>`,
    ];
  });
  return html`<${Panel} title="Settings"><${Table} label="Settings" columns=${["Setting", "Value", "Default", "Allowed"]} rows=${rows}
    details=${(row) => names[row] === open && html`<p class="meaning">${plain(known[names[row]]?.meaning ?? "")}</p>
      <${Change} key=${names[row]} kind=${kind} of=${name} name=${names[row]} value=${values[names[row]]} known=${known[names[row]] ?? {}}
        changed=${changed} />`} /><//>`;
}

function Change({ kind, of, name, value, known, changed }) {
  const [text, set] = useState(value);
  const path = kind === "topic" ? at("topics", of) : at("share-groups", of, "config");
  const save = async (body, said) => {
    await call("PATCH", path, { body });
    changed();
    return said;
  };
  const shell = (body, option, words) => ({ curl: curl("PATCH", path, body),
    cli: command(...(kind === "topic" ? ["topics", "alter"] : ["groups", "config"]), of, option, words) });
  const own = { config: { [name]: text } }, usual = { reset: [name] };
  const input = (event) => set(event.target.value);
  return html`<${Act} subject=${text} label="Save" kind="main" disabled=${text === value}
    run=${() => save(own, "Saved.")} shell=${shell(own, "--set", `${name}=${text}`)}>
      <${Field} label="Value" value=${text} onInput=${input} options=${known.choices?.map((each) => [each, each])} wide=${true} /><//>
    <${Act} label="Back to the default" run=${() => save(usual, "The default is in force again.")}
      shell=${shell(usual, "--reset", name)} />`;
}
