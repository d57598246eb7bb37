/**
 * A loop over generated types: fetch, handle, acknowledge; renew the locks of what takes long. Copy it into your project,
 * beside acknowledger.ts and producer.ts.
 *
 * `for await (const delivery of deliveries(client, "billing", ["orders"], { signal }))`: handle `delivery.record`, then call
 * `delivery.accept()`, `release(reason, delayMs)` or `reject(reason)`. A delivery that is not settled when the next one is
 * asked for is accepted. Leaving the loop, also by an error, releases the delivery and what was fetched and not handled.
 */
import { Acknowledger, type Acknowledgement, type Batch, type NotAcknowledged, type Word, one } from "./acknowledger.js";
import { FIRST_PAUSE_MS, type Gateway, MOST_PAUSE_MS, type Schemas, attempt, sleep } from "./producer.js";

export type ConsumerRecord = Schemas["ConsumerRecord"];

const WAIT_MS = 10_000;

export interface Options {
  /** Ends the loop after the delivery in hand, also while it waits for records. The other deliveries are released. */
  signal?: AbortSignal;
  /** How many records a fetch takes: 100 unless you say otherwise. */
  maxRecords?: number;
  /** Gets each acknowledgement that the service refused, or whose lock had ended. They are logged unless you say otherwise. */
  onError?: (fault: NotAcknowledged) => void;
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

export async function* deliveries(
  client: Gateway,
  group: string,
  topics: string[],
  options: Options = {},
): AsyncGenerator<Delivery, void, void> {
  const memberId = crypto.randomUUID();
  const member = new Member(new Acknowledger(client, group, memberId), options);
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
      "batches",
    ).catch((fault: unknown) => {
      if (stopped()) return { why: "stopped", retryAfterMs: undefined }; // the signal may abort with any reason
      throw fault;
    });
    if (!("data" in fetched)) {
      if (stopped()) return;
      if (pauseMs === FIRST_PAUSE_MS) console.warn(`no records for the group ${group}, trying again: ${fetched.why}`);
      await sleep(fetched.retryAfterMs ?? pauseMs, options.signal);
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
    private readonly acknowledger: Acknowledger,
    private readonly options: Options,
  ) {}

  async *handedOut(batches: Batch[]): AsyncGenerator<Delivery, void, void> {
    for (const batch of batches) for (const record of batch.records ?? []) this.held.set(record, batch);
    const shortest = Math.min(...batches.map((batch) => batch.lock_duration_ms), 30_000);
    const renewing = setInterval(() => void this.renew(), shortest / 3);
    const begun = new Set<ConsumerRecord>();
    try {
      for (const [record, batch] of [...this.held]) {
        if (this.options.signal?.aborted) break;
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
      await this.acknowledge(left);
    }
  }

  private async settle(record: ConsumerRecord, word: Word, more: Partial<Acknowledgement> = {}): Promise<void> {
    const batch = this.held.get(record);
    if (batch === undefined) return; // it is settled
    this.held.delete(record);
    await this.acknowledge([{ ...one(batch, record.offset, word), ...more }]);
  }

  private async acknowledge(outcomes: Acknowledgement[]): Promise<void> {
    const onError = this.options.onError ?? ((fault: NotAcknowledged) => console.warn(fault.message));
    for (const fault of await this.acknowledger.acknowledge(outcomes)) onError(fault);
  }

  private async renew(): Promise<void> {
    const renewals = [...this.held].map(([record, batch]) => one(batch, record.offset, "renew"));
    if (renewals.length > 0) await this.acknowledger.send(renewals).catch(console.warn); // the next third tries again
  }
}

function because(reason?: string): Partial<Acknowledgement> {
  return reason ? { reason: [...reason].slice(0, 1024).join("").replace(/\p{Surrogate}/gu, "�") } : {};
}
