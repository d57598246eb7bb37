/** Runs the code that docs/sdks.md shows in its text and tables. The environment says where the gateway is. */
import createClient from "openapi-fetch";
import { deepStrictEqual } from "node:assert";
import type { NotAcknowledged } from "./acknowledger.js";
import type { paths } from "./generated/schema.js";
import { type Schemas, send, sleep } from "./producer.js";
import { deliveries } from "./worker.js";

interface Order {
  total: number;
}

const client = createClient<paths>({ baseUrl: process.env["SHAREQUEUE_URL"]! });
const topic = "orders";
const topics = [topic];
const group = "billing";

// A repeat with the key stores nothing.
const batch: Schemas["ProduceRecord"][] = [
  { key: "ann", value: { total: 3 }, headers: { from: "web" } },
  { value: "bob" },
];
const first = await send(client, "orders", batch, { key: "order-17" });
const again = await send(client, "orders", batch, { key: "order-17" });
deepStrictEqual(again, first);

// Ann's record comes again in a minute. Bob's is rejected after SIGTERM, which ends the loop.
const stopping = new AbortController();
for (const name of ["SIGTERM", "SIGINT"]) process.once(name, () => stopping.abort());
const { signal } = stopping;
const handled: unknown[] = [];
for await (const delivery of deliveries(client, group, topics, { maxRecords: 10, lockDurationMs: 60_000, signal })) {
  const { record } = delivery;
  if (record.key === "ann") {
    handled.push([record.key, (record.value as Order).total, record.headers?.["from"]]);
    await delivery.release("busy", 60_000);
  } else {
    handled.push(record.value);
    process.kill(process.pid, "SIGTERM");
    await sleep(20_000, signal);
    await delivery.reject("no address");
  }
}
deepStrictEqual(handled, [["ann", 3, "web"], "bob"]);

// The service writes a dead letter a moment after the reject.
async function lastDeadLetter() {
  return (await client.GET("/v1/topics/{topic}/partitions/{partition}/records", { params: { path: { topic: "dlq.billing", partition: 0 }, query: { offset: 0 } } })).data?.records.at(-1);
}

let letter = await lastDeadLetter();
for (let tries = 0; letter?.value !== "bob" && tries < 600; tries++) {
  await sleep(100);
  letter = await lastDeadLetter();
}
deepStrictEqual(letter?.headers?.["__dlq.errors.reason"], "no address");

// Each acknowledgement succeeds, and Ann's record has not come again.
const records: Schemas["ProduceRecord"][] = [{ value: "carol" }];
await send(client, topic, records, { deadlineMs: 30_000 });
const lost: NotAcknowledged[] = [];
const onError = (fault: NotAcknowledged) => void lost.push(fault);
for await (const delivery of deliveries(client, group, topics, { onError })) {
  await delivery.accept();
  deepStrictEqual([delivery.record.value, lost], ["carol", []]);
  break;
}

// contract.ts looks at what a handler gets of it.
const inject = (headers: Record<string, string>) => void (headers["traceparent"] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
await send(client, "orders", batch, { inject });
