/** Plays ../cases.json with openapi-fetch and the generated types. The environment says where the gateway is. */
import createClient from "openapi-fetch";
import { readFileSync } from "node:fs";
import { isDeepStrictEqual } from "node:util";
import type { paths } from "./generated/schema.js";
import type { NotAcknowledged } from "./acknowledger.js";
import { type Gateway, type Problem, Refused, UnexpectedAnswer, send } from "./producer.js";
import { deliveries } from "./worker.js";

type Json = null | boolean | number | string | Json[] | { [name: string]: Json };
type Values = Record<string, Json>;

interface Step {
  call: string;
  path?: Values;
  query?: Values;
  headers?: Values;
  body?: Json;
  bytes?: string;
  stub?: boolean;
  key?: string;
  expect?: { status?: number; answer?: Json; problem?: Json; retry_after?: string };
  save?: Record<string, string>;
  eventually?: boolean;
  min_ms?: number;
  cancel_after_ms?: number;
  meanwhile?: { after_ms: number; step: Step };
}

interface Case {
  id: string;
  steps?: Step[];
  worker?: Work;
  then?: Step[];
}

interface Work {
  records: Json[];
  lock_duration_ms: number;
  slow_ms: number;
  handled: string[];
  lost?: string[];
  through_stub?: boolean;
  interrupted?: boolean;
  doubted?: boolean;
  trace?: string;
  refused?: Record<string, string[]>;
}

interface Found {
  status?: number;
  answer?: Json | undefined;
  problem?: Problem | undefined;
  retry_after?: string | null;
}

const PATIENCE_MS = 60_000;
const IDLE_MS = 15_000; // a fetch without an answer ends after 20 s
const URL = process.env["SHAREQUEUE_URL"]!;
const plain = createClient<paths>({ baseUrl: URL });
const stub = createClient<paths>({ baseUrl: process.env["SHAREQUEUE_STUB_URL"]! });

class Unexpected extends Error {}

/** A client of the gateway that wants keys: with the `good` one, with a `poor` one that has no rights, or with `none`. */
function keyed(name: string): Gateway {
  const url = process.env["SHAREQUEUE_GUARDED_URL"]!;
  const token = process.env[`SHAREQUEUE_KEY_${name.toUpperCase()}`];
  if (name === "poor") return createClient<paths>({ baseUrl: url, headers: { Authorization: "Bearer " + token } });
  const client = createClient<paths>({ baseUrl: url });
  const key = () => token;
  if (token) client.use({ onRequest: ({ request }) => request.headers.set("Authorization", "Bearer " + key()) });
  return client;
}

/** What any call of openapi-fetch answers. */
interface Answered {
  data?: unknown;
  error?: unknown;
  response: Response;
}

/** The parameters of a step. Their types are those that the call asks for: the table of cases is not typed. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
type Given = any;

/** Of the bodies that are not JSON. */
const TYPES: Record<string, string> = {
  produceArrow: "application/vnd.apache.arrow.stream",
  produceRawRecord: "application/octet-stream",
};

/** One typed call for each operation: the path is checked against the document. */
const CALLS: Record<string, (client: Gateway, given: Given) => Promise<Answered>> = {
  createTopic: (client, given) => client.POST("/v1/topics", given),
  listTopics: (client, given) => client.GET("/v1/topics", given),
  describeTopic: (client, given) => client.GET("/v1/topics/{topic}", given),
  updateTopic: (client, given) => client.PATCH("/v1/topics/{topic}", given),
  deleteTopic: (client, given) => client.DELETE("/v1/topics/{topic}", given),
  deleteRecords: (client, given) => client.POST("/v1/topics/{topic}/delete-records", given),
  produceRecords: (client, given) => client.POST("/v1/topics/{topic}/records", given),
  produceArrow: (client, given) => client.POST("/v1/topics/{topic}/records/arrow", given),
  produceRawRecord: (client, given) => client.POST("/v1/topics/{topic}/records/raw", given),
  readRecords: (client, given) => client.GET("/v1/topics/{topic}/partitions/{partition}/records", given),
  listRecordBatches: (client, given) => client.GET("/v1/topics/{topic}/partitions/{partition}/batches", given),
  replaceRecordBatches: (client, given) =>
    client.POST("/v1/topics/{topic}/partitions/{partition}/replace-batches", given),
  scheduleRecords: (client, given) => client.POST("/v1/topics/{topic}/scheduled", given),
  listScheduledRecords: (client, given) => client.GET("/v1/topics/{topic}/scheduled", given),
  cancelScheduledRecords: (client, given) => client.POST("/v1/topics/{topic}/cancel-scheduled", given),
  lookUpRecord: (client, given) =>
    client.GET("/v1/share-groups/{group}/topics/{topic}/partitions/{partition}/records/{offset}", given),
  fetchRecords: (client, given) => client.POST("/v1/share-groups/{group}/fetch", given),
  acknowledgeRecords: (client, given) => client.POST("/v1/share-groups/{group}/acknowledge", given),
  beginTransaction: (client, given) => client.POST("/v1/transactions", given),
  listTransactions: (client, given) => client.GET("/v1/transactions", given),
  describeTransaction: (client, given) => client.GET("/v1/transactions/{transaction}", given),
  commitTransaction: (client, given) => client.POST("/v1/transactions/{transaction}/commit", given),
  abortTransaction: (client, given) => client.POST("/v1/transactions/{transaction}/abort", given),
  terminateTransaction: (client, given) => client.POST("/v1/transactions/{transaction}/terminate", given),
  shareGroupHeartbeat: (client, given) => client.POST("/v1/share-groups/{group}/heartbeat", given),
  leaveShareGroup: (client, given) => client.DELETE("/v1/share-groups/{group}/members/{member_id}", given),
  listShareGroups: (client, given) => client.GET("/v1/share-groups", given),
  describeShareGroup: (client, given) => client.GET("/v1/share-groups/{group}", given),
  deleteShareGroup: (client, given) => client.DELETE("/v1/share-groups/{group}", given),
  getShareGroupConfig: (client, given) => client.GET("/v1/share-groups/{group}/config", given),
  getShareGroupServiceConfig: (client, given) => client.GET("/v1/share-groups/{group}/config/service", given),
  updateShareGroupConfig: (client, given) => client.PATCH("/v1/share-groups/{group}/config", given),
  listShareGroupOffsets: (client, given) => client.GET("/v1/share-groups/{group}/offsets", given),
  resetShareGroupOffsets: (client, given) => client.POST("/v1/share-groups/{group}/offsets/reset", given),
  deleteShareGroupOffsets: (client, given) => client.DELETE("/v1/share-groups/{group}/offsets/{topic}", given),
  listInFlightRecords: (client, given) => client.GET("/v1/share-groups/{group}/in-flight", given),
  redriveDeadLetters: (client, given) => client.POST("/v1/share-groups/{group}/dead-letters/redrive", given),
  listActivity: (client, given) => client.GET("/v1/reports/activity", given),
  livez: (client, given) => client.GET("/livez", given),
  readyz: (client, given) => client.GET("/readyz", given),
  metrics: (client, given) => client.GET("/metrics", { ...given, parseAs: "text" }),
};

class Player {
  constructor(private readonly values: Values) {}

  async play(step: Step): Promise<void> {
    const deadline = Date.now() + PATIENCE_MS;
    for (;;) {
      try {
        return await this.playOnce(step);
      } catch (fault) {
        if (!(fault instanceof Unexpected) || !step.eventually || Date.now() > deadline) throw fault;
        await sleep(100);
      }
    }
  }

  private async playOnce(step: Step): Promise<void> {
    const { meanwhile } = step;
    const other = meanwhile && sleep(meanwhile.after_ms).then(() => this.play(meanwhile.step));
    const started = Date.now();
    const found = await this.call(step);
    const took = Date.now() - started;
    await other;
    if (step.expect === undefined) return;
    check(this.filled(step.expect as Json), found as Json, "");
    if (took < (step.min_ms ?? 0)) throw new Unexpected(`it took ${took} ms`);
    for (const [name, place] of Object.entries(step.save ?? {})) {
      let value = found.answer as Given;
      for (const part of place.split(".")) value = value[part];
      this.values[name] = value;
    }
  }

  private async call(step: Step): Promise<Found> {
    if (step.call === "streamRecords") return this.stream(step);
    const client = step.key ? keyed(step.key) : step.stub ? stub : plain;
    const params = { path: step.path ?? {}, query: step.query ?? {}, header: step.headers ?? {} };
    const raw = step.bytes !== undefined;
    const given: Given = {
      params: this.filled(params),
      signal: AbortSignal.timeout(step.cancel_after_ms ?? 60_000),
      ...(step.body === undefined ? {} : { body: this.filled(step.body) }),
      ...(raw ? { body: Buffer.from(step.bytes!, "base64"), bodySerializer: (body: unknown) => body } : {}),
      ...(raw ? { headers: { "Content-Type": TYPES[step.call]! } } : {}),
    };
    let answered: Answered;
    try {
      answered = await CALLS[step.call]!(client, given);
    } catch (fault) {
      if (step.cancel_after_ms !== undefined) return {};
      throw fault;
    }
    const { data, error, response } = answered;
    return {
      status: response.status,
      answer: data as Json,
      problem: error as Problem | undefined,
      retry_after: response.headers.get("Retry-After"),
    };
  }

  /** The first events of a stream, each with its id. openapi-fetch would wait for the end of the stream. */
  private async stream(step: Step): Promise<Found> {
    const { group, ...query } = this.filled({ ...step.path, ...step.query }) as Record<string, string>;
    const count = (step.expect?.answer as Given)?.events?.length ?? 0;
    const closing = new AbortController();
    const timer = setTimeout(() => closing.abort(), 20_000);
    try {
      const response = await fetch(`${URL}/v1/share-groups/${group}/stream?${new URLSearchParams(query)}`, {
        headers: this.filled(step.headers ?? {}) as Record<string, string>,
        signal: closing.signal,
      });
      if (response.status !== 200) return { status: response.status, problem: (await response.json()) as Problem };
      const events: Json[] = [];
      let [text, id] = ["", ""];
      const decoder = new TextDecoder();
      for await (const bytes of response.body!) {
        text += decoder.decode(bytes, { stream: true });
        const lines = text.split("\n");
        text = lines.pop()!;
        for (const line of lines) {
          if (line.startsWith("id: ")) id = line.slice(4);
          else if (line.startsWith("data: ")) events.push({ id, data: JSON.parse(line.slice(6)) as Json });
        }
        if (events.length >= count) break;
      }
      return { status: 200, answer: { events } };
    } finally {
      clearTimeout(timer);
      closing.abort();
    }
  }

  private filled(value: Json): Json {
    if (typeof value === "string") {
      const whole = /^\$\{(\w+)\}$/.exec(value);
      if (whole) return this.values[whole[1]!]!;
      return value.replace(/\$\{(\w+)\}/g, (_, name: string) => String(this.values[name]));
    }
    if (Array.isArray(value)) return value.map((item) => this.filled(item));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, this.filled(item)]));
  }

  /** The producer stores each record once. The loop handles all, in the order of `handled`. */
  async work(spec: Work): Promise<void> {
    const [topic, group] = [String(this.values["topic"]), String(this.values["group"])];
    const guarded = spec.refused && keyed("good");
    const inject = (headers: Record<string, string>) => void (spec.trace && (headers["traceparent"] = spec.trace));
    await send(guarded ?? stub, topic, spec.records as { value: string }[], { inject }); // the stub loses an answer, and then refuses
    const handled: string[] = [];
    const lost: string[] = [];
    const ending = new AbortController();
    const timer = setTimeout(() => ending.abort(), 30_000);
    const options = {
      signal: ending.signal,
      lockDurationMs: spec.lock_duration_ms,
      onError: (fault: NotAcknowledged) => void lost.push(`${fault.acknowledgement.first_offset} ${fault.code}`),
    };
    for await (const delivery of deliveries(spec.through_stub ? stub : (guarded ?? plain), group, [topic], options)) {
      const value = spec.trace ? delivery.record.headers?.["traceparent"] : delivery.record.value;
      const first = delivery.batch.delivery_count === 1;
      if (spec.doubted) { // only those of a loop that is left are acknowledged in one request
        handled.push(...spec.handled);
        break;
      }
      if (value === "bad" && first) await delivery.release("not today" + "…".repeat(1024)); // a reason holds 1,024 characters
      else if (value === "at once" && first) await delivery.release("not yet \ud800", 0); // not the backoff of the group
      else if (value === "refused" && first) await delivery.release("the stub refuses this", 0);
      else if (value === "interrupt") {
        ending.abort(new Error("stopping"));
        await delivery.release("interrupted");
      } else {
        if (value === "slow") await sleep(spec.slow_ms);
        await delivery.accept();
        handled.push(`${typeof value === "number" ? "number" : value} ${delivery.batch.delivery_count}`);
      }
      if (handled.length === spec.records.length) break;
    }
    clearTimeout(timer);
    if (!isDeepStrictEqual([handled, lost], [spec.handled, spec.lost ?? []])) {
      throw new Unexpected(`handled: ${handled}, lost: ${lost}`);
    }
    for (const [key, codes] of Object.entries(spec.refused ?? {})) await meetRefusals(keyed(key), group, topic, codes);
    if (spec.interrupted) {
      await leave(topic);
      await endIdle(group, "empty");
      await endIdle(group, "away");
      await meetLoginPage(group);
    }
  }
}

/** A loop that waits for records, or for the service, ends at once with its signal. */
async function endIdle(group: string, topic: string): Promise<void> {
  const waiting = new AbortController();
  setTimeout(() => waiting.abort(new Error("stopping")), 1_500);
  const started = Date.now();
  for await (const each of deliveries(stub, group, [topic], { signal: waiting.signal })) {
    throw new Unexpected(`fetched: ${each.record.value}`);
  }
  if (Date.now() - started > IDLE_MS) throw new Unexpected(`a loop over ${topic} goes on after its signal`);
}

/** An error in the body of a loop ends it: what lies behind the delivery in hand is no attempt. */
async function leave(topic: string): Promise<void> {
  const group = `${topic}-left`;
  const oops = new Error("oops");
  try {
    for await (const _ of deliveries(plain, group, [topic])) throw oops;
  } catch (fault) {
    if (fault !== oops) throw fault;
  }
  const body = { topics: [topic], member_id: "m3", max_wait_ms: 0 };
  const { data } = await plain.POST("/v1/share-groups/{group}/fetch", { params: { path: { group } }, body });
  const attempts = data?.batches.flatMap(({ attempt, records }) => records?.map(() => attempt));
  if (!isDeepStrictEqual(attempts, [2, 1, 1, 1, 1])) throw new Unexpected(`after an error: attempts ${attempts}`);
}

/** Without the right a producer and a loop end, each with a code of the gateway. */
async function meetRefusals(client: Gateway, group: string, topic: string, codes: string[]): Promise<void> {
  const acts = [() => send(client, topic, [{ value: "one" }]), () => deliveries(client, group, [topic]).next()];
  for (const [index, act] of acts.entries()) {
    const fault = await act().then(() => "a success", (fault: unknown) => fault);
    if (!(fault instanceof Refused && fault.problem.code === codes[index])) throw new Unexpected(`not ${codes[index]}: ${fault}`);
  }
}

/** A proxy's login page is no success, and no reason to go on for ever. */
async function meetLoginPage(group: string): Promise<void> {
  for (const topic of ["login-302", "login-200", "login-401", "login-403", "login-json"]) {
    for (const act of [() => send(stub, topic, [{ value: "one" }]), () => deliveries(stub, group, [topic]).next()]) {
      const fault = await act().then(() => new Unexpected(`${topic} is taken for a success`), (fault: unknown) => fault);
      if (!(fault instanceof UnexpectedAnswer && fault.message.includes("wants a login"))) throw fault;
    }
  }
}

/** Throws Unexpected if a value that is expected is another one. What is not expected may be anything. */
function check(expected: Json, found: Json | undefined, place: string): void {
  const missing = found === undefined || found === null;
  let fits: boolean;
  if (expected === "$absent") fits = missing;
  else if (expected === "$any") fits = !missing;
  else if (expected === null) fits = missing;
  else if (Array.isArray(expected)) {
    fits = Array.isArray(found) && found.length === expected.length;
    if (fits) expected.forEach((value, index) => check(value, (found as Json[])[index], `${place}/${index}`));
  } else if (typeof expected === "object") {
    fits = typeof found === "object" && !missing;
    if (fits) for (const [name, value] of Object.entries(expected)) check(value, (found as Values)[name], `${place}/${name}`);
  } else fits = found === expected;
  if (!fits) {
    throw new Unexpected(`${place || "the answer"} is ${JSON.stringify(found)}, not ${JSON.stringify(expected)}`.slice(0, 600));
  }
}

function sleep(ms: number): Promise<void> {
  return new Promise((done) => setTimeout(done, ms));
}

const cases = JSON.parse(readFileSync(process.argv[2]!, "utf-8")) as Case[];
let failed = 0;
for (const { id, steps, worker, then } of cases) {
  const name = `typescript-${id}`;
  const player = new Player({ topic: name, group: name, large: "x".repeat(1_100_000) });
  try {
    for (const step of steps ?? []) await player.play(step);
    if (worker !== undefined) await player.work(worker);
    for (const step of then ?? []) await player.play(step);
    console.log(`ok ${id}`);
  } catch (fault) {
    failed += 1;
    console.log(`FAILED ${id}: ${String(fault)}`);
  }
}
console.log(`${cases.length - failed} passed, ${failed} failed`);
process.exitCode = failed > 0 ? 1 : 0;
