// fetch of Node.js, which is undici, through produce, fetch and acknowledge. Arguments: the gateway's URL, a topic.
import assert from "node:assert/strict";

const [url, topic] = process.argv.slice(2);

async function call(path, body) {
  const answer = await fetch(`${url}/v1/${path}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(30_000),
  });
  assert.equal(answer.status, 200);
  return answer.json();
}

await call(`topics/${topic}/records`, { records: [{ value: "one" }, { value: "two" }] });
const wanted = { topics: [topic], member_id: "node", max_wait_ms: 5000 };
const { batches } = await call(`share-groups/${topic}/fetch`, wanted);
assert.deepEqual(batches.map(({ records }) => records.map(({ value }) => value)), [["one", "two"]]);
const { topic_id, partition, first_offset, last_offset, delivery_count } = batches[0];
const accept = { topic, topic_id, partition, first_offset, last_offset, delivery_count, type: "accept" };
const accepted = await call(`share-groups/${topic}/acknowledge`, { member_id: "node", acknowledgements: [accept] });
assert.equal(accepted.failed_count, 0);
assert.deepEqual((await call(`share-groups/${topic}/fetch`, { ...wanted, max_wait_ms: 0 })).batches, []);
