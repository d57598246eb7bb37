/**
 * Sends records over generated types. A repeat stores nothing twice: all tries have one idempotency key. Copy it into your
 * project, beside worker.ts.
 */
import type { components } from "./generated/schema.js";
import { FIRST_PAUSE_MS, type Gateway, attempt, sleep } from "./worker.js";

type Schemas = components["schemas"];

const MOST_PAUSE_MS = 10_000;

export interface SendOptions {
  /** Names these records for 24 hours, in at most 128 characters. Without it, `send` makes one. */
  key?: string;
  /** How long `send` tries: 120,000 ms unless you say otherwise. */
  deadlineMs?: number;
}

/**
 * Stores the records. When it returns, they are on disk. Throws Refused if no repeat helps, and an Error at the deadline;
 * call it again with the same key and the same records then: they are stored once.
 */
export async function send(
  client: Gateway,
  topic: string,
  records: Schemas["ProduceRecord"][],
  { key = crypto.randomUUID(), deadlineMs = 120_000 }: SendOptions = {},
): Promise<Schemas["ProducedRecord"][]> {
  const deadline = Date.now() + deadlineMs;
  let pauseMs = FIRST_PAUSE_MS;
  for (;;) {
    const sent = await attempt(() =>
      client.POST("/v1/topics/{topic}/records", {
        params: { path: { topic }, header: { "Idempotency-Key": key } },
        body: { records },
        signal: AbortSignal.timeout(30_000),
      }),
    );
    if ("data" in sent) return sent.data.records;
    if (pauseMs === FIRST_PAUSE_MS) console.warn(`no answer from the topic ${topic}, trying again: ${sent.why}`);
    pauseMs = Math.max(sent.retryAfterMs ?? 0, pauseMs);
    if (Date.now() + pauseMs > deadline) throw new Error(`no answer to the records of the key ${key}: ${sent.why}`);
    await sleep(pauseMs);
    pauseMs = Math.min(2 * pauseMs, MOST_PAUSE_MS);
  }
}
