/**
 * Sends records over generated types. A repeat stores nothing twice: all tries have one idempotency key. Copy it into your
 * project. worker.ts and acknowledger.ts take from here which requests to repeat, and when.
 */
import type { Client } from "openapi-fetch";
import type { components, paths } from "./generated/schema.js";

export type Schemas = components["schemas"];
export type Gateway = Client<paths>;
export type Problem = Schemas["Problem"];

export const FIRST_PAUSE_MS = 100;
export const MOST_PAUSE_MS = 10_000;

/** A request that the service refused, and that no repeat mends. */
export class Refused extends Error {
  constructor(readonly problem: Problem) {
    super(`${problem.code}: ${problem.detail}`);
  }
}

/** Something answered that is not a gateway, such as the login page of a proxy. The request may have had its effect. */
export class UnexpectedAnswer extends Error {}

export interface SendOptions {
  /** Names these records for 24 hours, in at most 128 characters. Without it, `send` makes one. */
  key?: string;
  /** How long `send` tries: 120,000 ms unless you say otherwise. */
  deadlineMs?: number;
  /** Writes headers for records without a `key` of yours, as `inject` of OpenTelemetry's propagators does with `traceparent`. */
  inject?: (headers: Record<string, string>) => void;
}

/**
 * Stores the records. When it returns, they are on disk. Throws Refused if no repeat helps, and an Error at the deadline;
 * call it again with the same key and the same records then: they are stored once.
 */
export async function send(
  client: Gateway,
  topic: string,
  records: Schemas["ProduceRecord"][],
  { key, deadlineMs = 120_000, inject }: SendOptions = {},
): Promise<Schemas["ProducedRecord"][]> {
  if (inject && !key) {
    const made: Record<string, string> = {};
    inject(made);
    records = records.map((record) => ({ ...record, headers: { ...made, ...record.headers } }));
  }
  key ||= crypto.randomUUID();
  const deadline = Date.now() + deadlineMs;
  let pauseMs = FIRST_PAUSE_MS;
  for (;;) {
    const sent = await attempt(() =>
      client.POST("/v1/topics/{topic}/records", {
        params: { path: { topic }, header: { "Idempotency-Key": key } },
        body: { records },
        signal: AbortSignal.timeout(30_000),
      }),
      "records",
    );
    if ("data" in sent) return sent.data.records;
    if (pauseMs === FIRST_PAUSE_MS) console.warn(`no answer from the topic ${topic}, trying again: ${sent.why}`);
    pauseMs = Math.max(sent.retryAfterMs ?? 0, pauseMs);
    if (Date.now() + pauseMs > deadline) throw new Error(`no answer to the records of the key ${key}: ${sent.why}`);
    await sleep(pauseMs);
    pauseMs = Math.min(2 * pauseMs, MOST_PAUSE_MS);
  }
}

type Answer<T> = { data?: T; error?: Problem; response: Response };
type Attempt<T> = { data: T } | { retryAfterMs: number | undefined; why: string };

/** The answer, which has the member `needs`, or when to try again. Throws Refused if no repeat helps, and what else is not a fault of the network. */
export async function attempt<T>(call: () => Promise<Answer<T>>, needs: keyof T): Promise<Attempt<T>> {
  let answer: Answer<T>;
  try {
    answer = await call();
  } catch (fault) {
    if (fault instanceof SyntaxError) { // it is not JSON
      throw new UnexpectedAnswer(`the address is not a gateway's, or a proxy wants a login: ${fault.message}`);
    }
    // fetch of Node.js fails with a TypeError whose cause is the network's error, or at a signal with a DOMException
    const cause = fault instanceof TypeError ? fault.cause : undefined;
    const network = fault instanceof DOMException || (cause instanceof Error && !(cause instanceof TypeError));
    if (!network) throw fault;
    return { retryAfterMs: undefined, why: `${fault}${cause ? `: ${(cause as { code?: string }).code ?? cause}` : ""}` };
  }
  const { data, error, response } = answer;
  if ((data as T | null)?.[needs] !== undefined) return { data: data as T };
  if (error?.code === "INVALID_RECORD_STATE") return { data: error as T }; // the lock ended: it comes again
  const seconds = response.headers.get("Retry-After");
  const retryAfterMs = seconds === null ? undefined : Number(seconds) * 1000;
  if (error?.code === undefined) { // something else answered
    if (response.status < 500 && ![408, 429].includes(response.status)) {
      throw new UnexpectedAnswer(`${response.url} answered ${response.status}, and is not a gateway or wants a login`);
    }
    return { retryAfterMs, why: `HTTP ${response.status}` };
  }
  if (!error.retriable) throw new Refused(error);
  return { retryAfterMs, why: `${error.code}: ${error.detail}` };
}

/** Ends early if the signal aborts. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((done) => {
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      done();
    };
    const timer = setTimeout(end, ms);
    signal?.addEventListener("abort", end);
  });
}
