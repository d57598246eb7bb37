/** Acknowledges over generated types, until each outcome is known. Copy it into your project, beside worker.ts. */
import { type Gateway, Refused, type Schemas, UnexpectedAnswer, attempt, sleep } from "./producer.js";

export type Acknowledgement = Schemas["Acknowledgement"];
export type Batch = Schemas["FetchedBatch"];
export type Word = Schemas["AcknowledgeType"];

const TRY_MS = 30_000;

const NOT_OWN = "another member has finished these records, or they were deleted";

/**
 * An acknowledgement that the service refused, or whose lock had ended: its records come again, unless another member has
 * finished them.
 */
export class NotAcknowledged extends Error {
  constructor(
    readonly acknowledgement: Acknowledgement,
    /** Of the Problem, for example INVALID_RECORD_STATE; UNEXPECTED_ANSWER if something else answered; "" if nothing did. */
    readonly code: string,
    readonly detail: string,
  ) {
    const { type, topic, partition, first_offset } = acknowledgement;
    super(`${type} of ${topic}/${partition}/${first_offset} was not applied: ${code} ${detail}`);
  }
}

/** Sends the acknowledgements of one member. */
export class Acknowledger {
  constructor(
    private readonly client: Gateway,
    private readonly group: string,
    private readonly memberId: string,
  ) {}

  /**
   * Repeats for 30 s what has no known outcome: a repeat is recognised by its delivery count. A request that is refused for
   * what it says is sent again in halves, so that one bad acknowledgement spoils no other. Returns those that were refused
   * or failed.
   */
  async acknowledge(outcomes: Acknowledgement[]): Promise<NotAcknowledged[]> {
    const lost: NotAcknowledged[] = [];
    // doubted: they may have had their effect, and the answer was lost
    const parts = outcomes.length > 0 ? [{ part: outcomes, doubted: false }] : [];
    const deadline = Date.now() + TRY_MS;
    for (let next = parts.pop(); next !== undefined; next = parts.pop()) {
      const { part, doubted } = next;
      const last = Date.now() > deadline;
      const fail = (code: string, detail: string) => {
        for (const outcome of part) lost.push(new NotAcknowledged(outcome, code, detail));
      };
      let sent;
      try {
        sent = await this.send(part);
      } catch (fault) {
        const problem = fault instanceof Refused ? fault.problem : undefined;
        if (part.length > 1 && problem !== undefined && [400, 413, 422].includes(problem.status)) {
          for (const half of [part.slice(part.length / 2), part.slice(0, part.length / 2)]) parts.push({ part: half, doubted });
        } else fail(problem?.code ?? (fault instanceof UnexpectedAnswer ? "UNEXPECTED_ANSWER" : ""), problem?.detail ?? String(fault));
        continue;
      }
      if ("why" in sent) {
        if (last) fail("", sent.why);
        else {
          parts.push({ part, doubted: true });
          await sleep(sent.retryAfterMs ?? 500);
        }
        continue;
      }
      const unknown: Acknowledgement[] = [];
      for (const [index, { status, code, detail }] of sent.data.results.entries()) {
        if (status === "unknown" && !last) unknown.push(part[index]!);
        else if (status === "ignored" && !doubted) {
          lost.push(new NotAcknowledged(part[index]!, "INVALID_RECORD_STATE", NOT_OWN));
        }
        else if (status === "unknown" || status === "failed") {
          lost.push(new NotAcknowledged(part[index]!, code ?? "", detail ?? ""));
        }
      }
      if (unknown.length > 0) {
        parts.push({ part: unknown, doubted: true });
        await sleep(500);
      }
    }
    return lost;
  }

  /** One request. */
  send(acknowledgements: Acknowledgement[]) {
    return attempt(() =>
      this.client.POST("/v1/share-groups/{group}/acknowledge", {
        params: { path: { group: this.group } },
        body: { member_id: this.memberId, acknowledgements },
        signal: AbortSignal.timeout(30_000),
      }),
      "results",
    );
  }
}

export function one(batch: Batch, offset: number, type: Word): Acknowledgement {
  const { topic, topic_id, partition, delivery_count } = batch;
  return { topic, topic_id, partition, first_offset: offset, last_offset: offset, delivery_count, type };
}
