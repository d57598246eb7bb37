// The frame of the page: which view an address shows, the way to topics and groups, and the key.
import { Component, render } from "./vendor/preact.js";
import { useEffect, useRef, useState } from "./vendor/hooks.js";
import { BASE, at, get, key, setKey } from "./api.js";
import { Field, Link, clock, go, html, place, to, useQuery } from "./parts.js";
import { Groups, Overview } from "./overview.js";
import { Topics, Topic } from "./topic.js";
import { Group } from "./group.js";
import { DeadLetters } from "./dead-letters.js";
import { Scheduled } from "./scheduled.js";
import { Transactions } from "./transactions.js";

const NAME = "([^/]+)";
const VIEWS = [
  ["/?", Overview, () => "Overview"],
  ["/groups", Groups, () => "Groups"],
  ["/topics", Topics, () => "Topics"],
  [`/topics/${NAME}`, Topic, (name) => `Topic ${name}`],
  [`/groups/${NAME}`, Group, (name) => `Group ${name}`],
  [`/groups/${NAME}/dead-letters`, DeadLetters, (name) => `Dead letters of ${name}`],
  ["/scheduled", Scheduled, () => "Scheduled"],
  ["/transactions", Transactions, () => "Transactions"],
];
const NAVIGATION = [["Overview", []], ["Groups", ["groups"]], ["Topics", ["topics"]], ["Scheduled", ["scheduled"]],
  ["Transactions", ["transactions"]]];

// The gateway serves this page at no other address; one that it serves has a view.
function find(path) {
  for (const [pattern, view, title] of VIEWS) {
    const found = path.match(new RegExp(`^${pattern}$`));
    if (found) return { view, name: found[1] && decodeURIComponent(found[1]), title };
  }
  return { view: Overview, title: () => "Overview" };
}

function Live() {
  const [live, set] = useState({ ok: true });
  useEffect(() => {
    const heard = ({ detail }) => set((was) => ({ ok: detail, at: detail ? Date.now() : was.at }));
    window.addEventListener("live", heard);
    return () => window.removeEventListener("live", heard);
  }, []);
  return html`<span class=${live.ok ? "live" : "live bad"} title="The time of the last answer. A hidden tab asks for nothing.">${
    live.ok ? "Live" : "Not live"}${live.at ? html` <span class="when">${clock(live.at)}</span>` : ""}</span>`;
}

// A name leads to the topic that has it, or else to the group.
function Jump() {
  const field = useRef();
  useEffect(() => {
    const press = (event) => {
      if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target.closest("input,textarea,select")) return;
      event.preventDefault();
      field.current.focus();
    };
    window.addEventListener("keydown", press);
    return () => window.removeEventListener("keydown", press);
  }, []);
  const open = async (event) => {
    event.preventDefault();
    const name = field.current.value.trim();
    if (!name) return;
    const topic = await get(at("topics", name)).then(() => true, () => false);
    field.current.value = "";
    go(to([topic ? "topics" : "groups", name]));
  };
  return html`<form class="jump" role="search" onSubmit=${open}>
    <input ref=${field} type="search" aria-label="Go to a topic or group" placeholder="Topic or group" autocomplete="off"
      spellcheck=${false} /></form>`;
}

function Key() {
  const dialog = useRef();
  const [held, set] = useState(key() !== "");
  useEffect(() => {
    const look = () => set(key() !== "");
    window.addEventListener("key", look);
    return () => window.removeEventListener("key", look);
  }, []);
  const keep = (event) => {
    event.preventDefault();
    setKey(dialog.current.querySelector("input").value.trim());
    dialog.current.querySelector("input").value = "";
    dialog.current.close();
  };
  return html`<button type="button" onClick=${() => dialog.current.showModal()}>${held ? "Key held" : "Key"}</button>
    <dialog ref=${dialog} aria-label="Key"><form onSubmit=${keep}><h2>Key</h2>
      <p>A gateway that asks who calls needs a key, such as <code>sq_…</code>.
        This tab keeps it until you close the tab. It is in no address.</p>
      <${Field} label="Key" type="password" wide=${true} />
      <div class="row"><button type="button" onClick=${() => dialog.current.close()}>Cancel</button>
        ${held && html`<button type="button" onClick=${() => { setKey(""); dialog.current.close(); }}>Forget the key</button>`}
          <button class="main">Use the key</button></div></form></dialog>`;
}

// A fault of one view must not take the frame with it.
class Guard extends Component {
  componentDidCatch(fault) {
    console.error(fault);
    this.setState({ fault });
  }
  render({ children }, { fault }) {
    return fault ? html`<p class="notice bad" role="alert">This page has a fault: ${String(fault.message)}. <a href=${location.href}
      onClick=${() => location.reload()}>Load it again</a></p>` : children;
  }
}

function App() {
  useQuery();
  const { path } = place();
  const { view, name, title } = find(path);
  useEffect(() => {
    document.title = `${title(name)} · sharequeue`;
    window.scrollTo(0, 0);
  }, [path]);
  const here = `/${path.split("/")[1] ?? ""}`;
  const skip = (event) => {
    event.preventDefault();
    document.getElementById("main").focus();
  };
  return html`<a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <header class="top"><a class="brand" href=${to([])}><img src="${BASE}ui/mark.svg" alt="" width="22" height="22" />sharequeue</a>
      <nav aria-label="Pages">${NAVIGATION.map(([text, names]) => html`<${Link} names=${names}
        aria-current=${here === `/${names[0] ?? ""}` ? "page" : undefined}>${text}<//>`)}
        <a href="${BASE}docs">API</a></nav>
      <div class="tools"><${Live} /><${Jump} /><${Key} /></div></header>
    <main id="main" tabindex="-1"><${Guard} key=${path}><${view} name=${name} /><//></main>`;
}

// Links within the page change its address without loading it again.
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const ours = link.origin === location.origin && (link.pathname === `${BASE}ui` || link.pathname.startsWith(`${BASE}ui/`));
  if (!ours || link.hash) return;
  event.preventDefault();
  go(link.href);
});
render(html`<${App} />`, document.getElementById("app"));
