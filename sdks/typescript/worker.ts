/**
 * A loop over generated types: fetch, handle, acknowledge; renew the locks of what takes long. Copy it into your project.
 *
 * `for await (const delivery of deliveries(client, "billing", ["orders"], { signal }))`: handle `delivery.record`, then call
 * `delivery.accept()`, `release(reason, delayMs)` or `reject(reason)`. A delivery that is not settled when the next one is
 * asked for is accepted. Leaving the loop, also by an error, releases the delivery and what was fetched and not handled.
 */
import type { Client } from "openapi-fetch";
import type { components, paths } from "./generated/schema.js";

type Schemas = components["schemas"];
export type Gateway = Client<paths>;
export type Batch = Schemas["FetchedBatch"];
export type ConsumerRecord = Schemas["ConsumerRecord"];
export type Problem = Schemas["Problem"];
type Acknowledgement = Schemas["Acknowledgement"];
type Word = Schemas["AcknowledgeType"];

const WAIT_MS = 10_000;
export const FIRST_PAUSE_MS = 100;
const MOST_PAUSE_MS = 10_000;

export interface Options {
  /** Ends the loop, also while it waits for records. */
  signal?: AbortSignal;
  /** How many records a fetch takes: 100 unless you say otherwise. */
  maxRecords?: number;
  /** How long the locks last; unless you say otherwise, as long as the group says. They are renewed. */
  lockDurationMs?: number;
}

export interface Delivery {
  readonly record: ConsumerRecord;
  readonly batch: Batch;
  accept(): Promise<void>;
  /** It comes again after `delayMs`, up to 12 hours; without it, after the group's backoff. */
  release(reason?: string, delayMs?: number): Promise<void>;
  /** It becomes a dead letter. */
  reject(reason?: string): Promise<void>;
}

/** A request that the service refused, and that no repeat mends. */
export class Refused extends Error {
  constructor(readonly problem: Problem) {
    super(`${problem.code}: ${problem.detail}`);
  }
}

export async function* deliveries(
  client: Gateway,
  group: string,
  topics: string[],
  options: Options = {},
): AsyncGenerator<Delivery, void, void> {
  const memberId = crypto.randomUUID();
  const member = new Member(client, group, memberId);
  const stopped = () => options.signal?.aborted ?? false;
  let [pauseMs, fetchId] = [FIRST_PAUSE_MS, crypto.randomUUID()];
  while (!stopped()) {
    const fetched = await attempt(() =>
      client.POST("/v1/share-groups/{group}/fetch", {
        params: { path: { group } },
        body: {
          topics,
          member_id: memberId,
          fetch_id: fetchId, // a repeat, because an answer was lost, gets the same records
          max_wait_ms: WAIT_MS,
          max_records: options.maxRecords ?? 100,
          ...(options.lockDurationMs === undefined ? {} : { lock_duration_ms: options.lockDurationMs }),
        },
        signal: AbortSignal.any([AbortSignal.timeout(WAIT_MS + 10_000), ...(options.signal ? [options.signal] : [])]),
      }),
    );
    if (!("data" in fetched)) {
      if (stopped()) return;
      if (pauseMs === FIRST_PAUSE_MS) console.warn(`no records for the group ${group}, trying again: ${fetched.why}`);
      await sleep(fetched.retryAfterMs ?? pauseMs);
      pauseMs = Math.min(2 * pauseMs, MOST_PAUSE_MS);
      continue;
    }
    [pauseMs, fetchId] = [FIRST_PAUSE_MS, crypto.randomUUID()];
    yield* member.handedOut(fetched.data.batches);
  }
}

/** One member, and the records that it holds. */
class Member {
  private readonly held = new Map<ConsumerRecord, Batch>();

  constructor(
    private readonly client: Gateway,
    private readonly group: string,
    private readonly memberId: string,
  ) {}

  async *handedOut(batches: Batch[]): AsyncGenerator<Delivery, void, void> {
    for (const batch of batches) for (const record of batch.records ?? []) this.held.set(record, batch);
    const shortest = Math.min(...batches.map((batch) => batch.lock_duration_ms), 30_000);
    const renewing = setInterval(() => void this.renew(), shortest / 3);
    const begun = new Set<ConsumerRecord>();
    try {
      for (const [record, batch] of [...this.held]) {
        begun.add(record);
        yield {
          record,
          batch,
          accept: () => this.settle(record, "accept"),
          release: (reason, delayMs) =>
            this.settle(record, "release", { ...because(reason), ...(delayMs === undefined ? {} : { delay_ms: delayMs }) }),
          reject: (reason) => this.settle(record, "reject", because(reason)),
        };
        await this.settle(record, "accept");
      }
    } finally {
      clearInterval(renewing);
      const left = [...this.held].map(([record, batch]) => ({
        ...one(batch, record.offset, "release"),
        ...(begun.has(record) ? {} : { begun: false }), // a delivery that was never begun is no attempt
      }));
      this.held.clear();
      if (left.length > 0) await this.send(left).catch(console.warn); // their locks end by themselves
    }
  }

  /** Settle one record, until the outcome is known. A repeat is recognised by its delivery count. */
  private async settle(record: ConsumerRecord, word: Word, more: Partial<Acknowledgement> = {}): Promise<void> {
    const batch = this.held.get(record);
    if (batch === undefined) return; // it is settled
    this.held.delete(record);
    const deadline = Date.now() + 30_000;
    for (;;) {
      const sent = await this.send([{ ...one(batch, record.offset, word), ...more }]);
      const result = "data" in sent ? sent.data.results[0] : undefined;
      const failed = result?.status === "failed" || Date.now() > deadline;
      if (failed) {
        const why = "why" in sent ? sent.why : result?.detail;
        console.warn(`${word} of ${batch.topic}/${batch.partition}/${record.offset} failed, it comes again: ${why}`);
      }
      if (failed || (result !== undefined && result.status !== "unknown")) return;
      await sleep(("data" in sent ? undefined : sent.retryAfterMs) ?? 500);
    }
  }

  private async renew(): Promise<void> {
    const renewals = [...this.held].map(([record, batch]) => one(batch, record.offset, "renew"));
    if (renewals.length > 0) await this.send(renewals).catch(console.warn); // the next third of the lock tries again
  }

  private send(acknowledgements: Acknowledgement[]) {
    return attempt(() =>
      this.client.POST("/v1/share-groups/{group}/acknowledge", {
        params: { path: { group: this.group } },
        body: { member_id: this.memberId, acknowledgements },
        signal: AbortSignal.timeout(30_000),
      }),
    );
  }
}

function one(batch: Batch, offset: number, type: Word): Acknowledgement {
  const { topic, partition, delivery_count } = batch;
  return { topic, partition, first_offset: offset, last_offset: offset, delivery_count, type };
}

function because(reason?: string): Partial<Acknowledgement> {
  return reason ? { reason: [...reason].slice(0, 1024).join("") } : {};
}

type Answer<T> = { data?: T; error?: Problem; response: Response };
type Attempt<T> = { data: T } | { retryAfterMs: number | undefined; why: string };

/** The answer, or when to try again. Throws Refused if no repeat helps, and what else is not a fault of the network. */
export async function attempt<T>(call: () => Promise<Answer<T>>): Promise<Attempt<T>> {
  let answer: Answer<T>;
  try {
    answer = await call();
  } catch (fault) {
    // fetch of Node.js fails with a TypeError whose cause is the network's error, or at a signal with a DOMException
    const cause = fault instanceof TypeError ? fault.cause : undefined;
    const network = fault instanceof DOMException || (cause instanceof Error && !(cause instanceof TypeError));
    if (!network) throw fault;
    return { retryAfterMs: undefined, why: `${fault}${cause ? `: ${(cause as { code?: string }).code ?? cause}` : ""}` };
  }
  const { data, error, response } = answer;
  if (data !== undefined) return { data };
  if (error?.code === "INVALID_RECORD_STATE") return { data: error as T }; // the lock ended: it comes again
  const seconds = response.headers.get("Retry-After");
  const retryAfterMs = seconds === null ? undefined : Number(seconds) * 1000;
  if (error?.code === undefined) { // a proxy answered
    if (response.status < 500 && ![408, 429].includes(response.status)) throw new Error(`HTTP ${response.status}: ${error}`);
    return { retryAfterMs, why: `HTTP ${response.status}` };
  }
  if (!error.retriable) throw new Refused(error);
  return { retryAfterMs, why: `${error.code}: ${error.detail}` };
}

export function sleep(ms: number): Promise<void> {
  return new Promise((done) => setTimeout(done, ms));
}
