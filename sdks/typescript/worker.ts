/**
 * A loop over generated types: fetch, handle, acknowledge; renew the locks of what takes long. Copy it into your project.
 *
 * `for await (const delivery of deliveries(client, "billing", ["orders"], { signal }))`: handle `delivery.record`, then call
 * `delivery.accept()`, `release(reason)` or `reject(reason)`. A delivery that is not settled when the next one is asked for
 * is accepted. Leaving the loop releases what was fetched and not handled.
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
const MOST_PAUSE_MS = 10_000;

export interface Options {
  signal?: AbortSignal;
  maxRecords?: number;
  lockDurationMs?: number;
}

export interface Delivery {
  readonly record: ConsumerRecord;
  readonly batch: Batch;
  accept(): Promise<void>;
  release(reason?: string, delayMs?: number): Promise<void>;
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
  let [pauseMs, fetchId] = [100, crypto.randomUUID()];
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
      await sleep(fetched.retryAfterMs ?? pauseMs);
      pauseMs = Math.min(2 * pauseMs, MOST_PAUSE_MS);
      continue;
    }
    [pauseMs, fetchId] = [100, crypto.randomUUID()];
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
            this.settle(record, "release", { ...(reason ? { reason } : {}), ...(delayMs ? { delay_ms: delayMs } : {}) }),
          reject: (reason) => this.settle(record, "reject", reason ? { reason } : {}),
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
      if (left.length > 0) await this.send(left).catch(() => undefined); // their locks end by themselves
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
      if ("data" in sent && sent.data.results[0]?.status !== "unknown") return;
      if (Date.now() > deadline) return; // the lock ends, and the record comes again
      await sleep(("data" in sent ? undefined : sent.retryAfterMs) ?? 500);
    }
  }

  private async renew(): Promise<void> {
    const renewals = [...this.held].map(([record, batch]) => one(batch, record.offset, "renew"));
    if (renewals.length > 0) await this.send(renewals).catch(() => undefined); // the next third of the lock tries again
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

type Answer<T> = { data?: T; error?: Problem; response: Response };
type Attempt<T> = { data: T } | { retryAfterMs: number | undefined };

/** The answer, or when to try again. Throws Refused if no repeat helps. */
export async function attempt<T>(call: () => Promise<Answer<T>>): Promise<Attempt<T>> {
  let answer: Answer<T>;
  try {
    answer = await call();
  } catch {
    return { retryAfterMs: undefined }; // the network, or a time-out
  }
  if (answer.data !== undefined) return { data: answer.data };
  if (answer.error?.code === "INVALID_RECORD_STATE") return { data: answer.error as T }; // the lock ended: it comes again
  if (answer.error && !answer.error.retriable) throw new Refused(answer.error);
  const seconds = answer.response.headers.get("Retry-After");
  return { retryAfterMs: seconds === null ? undefined : Number(seconds) * 1000 };
}

export function sleep(ms: number): Promise<void> {
  return new Promise((done) => setTimeout(done, ms));
}
