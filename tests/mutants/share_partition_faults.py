"""Faults of acknowledging, writing and time: protocol 3, 8 to 12 and 14, and the dead-letter queue."""

from tests.mutants.mutant import gateway

MUTANTS = [
    *gateway(
        "share_partition/machine",
        (
            "8.2 an acknowledgement below the start offset is ignored",
            "                if batch.last_offset >= self.start_offset:\n",
            "                if batch.last_offset >= 0:\n",
        ),
        (
            "8.3 acknowledging unfetched offsets is an invalid request",
            "        if not runs or runs[-1].last < batch.last_offset:\n",
            "        if False:\n",
        ),
        (
            "8.3 offsets before the window are not held",
            "        if window_first > batch.last_offset or not begins_inside:\n",
            "        if window_first > batch.last_offset:\n",
        ),
        (
            "8.4 only the holder acknowledges",
            " and run.member_id == call.member_id\n",
            "\n",
        ),
        (
            "8.4 a second transition is refused",
            "            raise not_held(run, call.member_id, batch.delivery_count)\n",
            "            if run.write is None:\n"
            "                raise not_held(run, call.member_id, batch.delivery_count)\n",
        ),
        (
            "8.4 only acquired records are acknowledged",
            "            held = run.state is ACQUIRED and run.write is None and run.member_id == call.member_id\n",
            "            if run.acquirable:\n"
            "                run.become(ACQUIRED)\n"
            "                run.member_id = call.member_id\n"
            "            held = run.state is ACQUIRED and run.write is None and run.member_id == call.member_id\n",
        ),
        (
            "8.4 another delivery count is refused",
            "            if not held or batch.delivery_count not in (None, run.delivery_count):\n",
            "            if not held:\n",
        ),
        (
            "8.5 gap archives",
            "            case AcknowledgeType.GAP:\n                return ARCHIVED",
            "            case AcknowledgeType.GAP:\n                return ACKNOWLEDGED",
        ),
        (
            "8.5 accept acknowledges",
            "            case AcknowledgeType.ACCEPT:\n                return ACKNOWLEDGED",
            "            case AcknowledgeType.ACCEPT:\n                return ARCHIVED",
        ),
        (
            "8.5 gap leaves the dead-letter queue alone, reject does not",
            "                return self.dead_state\n            case AcknowledgeType.RENEW",
            "                return ARCHIVED\n            case AcknowledgeType.RENEW",
        ),
        (
            "8.5 renewing can be off",
            "                if not self.config.renew_acknowledge_enable:\n",
            "                if False:\n",
        ),
        (
            "8.5 a renewal is a full lock",
            "        run.lock_expires_at_ms = now_ms + run.lock_duration_ms\n",
            "        run.lock_expires_at_ms += 1\n",
        ),
        (
            "8.6 acknowledgements are joined within one run alone",
            " and batches[end].last_offset <= last and",
            " and",
        ),
        (
            "8.6 acknowledgements are joined if they are equal",
            " and batch.continued_by(batches[end]):\n",
            ":\n",
        ),
        (
            "8.6 neighbours in one run stay one run",
            "self.runs[index].last if index >= 0 and batch.first_offset >= self.start_offset else -1\n",
            "-1\n",
        ),
        (
            "8.6 a failing request undoes its changes",
            "        except (InvalidRecordState, InvalidRequest):\n            self.roll_back(call.write, now_ms)\n",
            "        except (InvalidRecordState, InvalidRequest):\n",
        ),
        (
            "8.7 types stay with their offsets",
            "        offset = batch.first_offset\n        for",
            "        offset = first\n        for",
        ),
        (
            "8.7 a repeat at the same delivery count is recognised",
            "        settled = run.state is target or (target is ARCHIVING and run.state is ARCHIVED)\n",
            "        settled = False\n",
        ),
        (
            "8.7 a repeat is one of the same delivery",
            "same_delivery = batch.delivery_count is not None and run.delivery_count == batch.delivery_count",
            "same_delivery = batch.delivery_count is not None",
        ),
        (
            "8.7 a repeat waits for the write it repeats",
            "            call.joined[id(run.write)] = run.write\n",
            "            pass\n",
        ),
        (
            "9 a write carries the delivery-complete count",
            "            write.fill(write.runs, self.delivery_complete_count)\n            call.joined",
            "            write.fill(write.runs, 0)\n            call.joined",
        ),
        (
            "9 a failed write is rolled back",
            "            self.roll_back(write, refused_at_ms)\n",
            "            made_available = self.commit(write)\n",
        ),
        (
            "9 an outcome moves the start offset",
            "        start_moved = self.advance()\n",
            "        start_moved = False\n",
        ),
        (
            "9 a transition on its way beats the lock",
            "                if run.write is not None:\n                    continue\n                if run.state is ACQUIRED and",
            "                if run.state is ACQUIRED and",
        ),
        (
            "10 a lock ends at its deadline, not before",
            "run.state is ACQUIRED and run.lock_expires_at_ms <= now_ms:",
            "run.state is ACQUIRED:",
        ),
        (
            "10 an ended lock frees its room",
            "        else:\n            self.held_count -= run.size\n            self.count_terminal(run, 1)\n",
            "        else:\n            self.count_terminal(run, 1)\n",
        ),
        (
            "10 the rest of a due range stays due",
            "            if runs and runs[-1].last < due[1]:\n",
            "            if False:\n",
        ),
        (
            "10 a call of expire looks at a bounded number of runs",
            "            left -= max(len(runs), 1)\n",
            "",
        ),
        (
            "10 a lock across the start offset ends on each side for itself",
            "        if run.first < self.start_offset <= run.last:\n            self.time_lock(",
            "        if False:\n            self.time_lock(",
        ),
        (
            "10 an ended lock has no holder",
            "        run.unlock()\n        run.released = False\n",
            "        run.released = False\n",
        ),
        (
            "11 only the member's own records are released",
            "if run.state is ACQUIRED and run.write is None and run.member_id == member_id:\n                parts = [run]",
            "if run.state is ACQUIRED and run.write is None:\n                parts = [run]",
        ),
        (
            "11 a release across the start offset has two sides",
            "                if run.first < self.start_offset <= run.last:\n                    self.cut_out(",
            "                if False:\n                    self.cut_out(",
        ),
        (
            "12 a log start behind the start offset is ignored",
            "        if log_start_offset <= self.start_offset:\n            return False\n",
            "",
        ),
        (
            "12 a log start beyond the window moves its end",
            "        self.end_offset = max(self.end_offset, log_start_offset)\n",
            "",
        ),
        (
            "14 finished records below a log start are counted no more",
            "                self.delivery_complete_count -= gone\n",
            "                pass\n",
        ),
        (
            "11.1 a dead letter is due when ARCHIVING is durable",
            "for run in write.runs if ok and run.state is ARCHIVING]",
            "for run in write.runs if not ok and run.state is ARCHIVING]",
        ),
        (
            "11.2 a dead letter on its way is not finished early",
            "            if run.state is ARCHIVING and run.write is None:\n                part = self.cut_out(run, first",
            "            if run.state is ARCHIVING:\n                part = self.cut_out(run, first",
        ),
        (
            "11.3 a written dead letter counts",
            "                self.count_terminal(part, 1)\n                changed.append(part)",
            "                changed.append(part)",
        ),
        (
            "11.4 causes are inferred from the count at load",
            "LIMIT_EXCEEDED if self.is_last_attempt(run) else REJECTED\n                dead",
            "REJECTED\n                dead",
        ),
        (
            "11.5 reject and limit have causes of their own",
            "part.cause = REJECTED if acknowledge_type is AcknowledgeType.REJECT else LIMIT_EXCEEDED",
            "part.cause = LIMIT_EXCEEDED",
        ),
        (
            "11.5 a member that leaves after its last delivery has used up the attempts",
            "                part.cause = LIMIT_EXCEEDED\n",
            "                part.cause = REJECTED\n",
        ),
        (
            "11.5 rejected by hand is rejected",
            "self.dead_state, REJECTED, dead_letters)",
            "self.dead_state, LIMIT_EXCEEDED, dead_letters)",
        ),
        (
            "16 a lock that is left to the next leader has its own length",
            "                run.lock_duration_ms,\n                run.forgiven - ",
            "                self.config.record_lock_duration_ms,\n                run.forgiven - ",
        ),
        (
            "a lock carries no forgiveness that may be refused",
            "run.forgiven - (run.forgiving != NOT_FORGIVEN),",
            "run.forgiven,",
        ),
        (
            "only a release forgives",
            "if acknowledge_type is not AcknowledgeType.RELEASE or not self.config.forgives:\n",
            "if not self.config.forgives:\n",
        ),
        (
            "a delay of 0 is at once",
            "        if batch.delay_ms is None and batch.begun:\n",
            "        if not batch.delay_ms and batch.begun:\n",
        ),
        (
            "a delay holds also for what was never begun",
            "        return now_ms + batch.delay_ms if batch.delay_ms else 0\n",
            "        return now_ms + batch.delay_ms if batch.delay_ms and batch.begun else 0\n",
        ),
        (
            "a delayed release waits",
            "        return now_ms + batch.delay_ms if batch.delay_ms else 0\n",
            "        return 0\n",
        ),
        (
            "a delay ends when its time has come",
            "                elif run.available_at_ms and run.available_at_ms <= now_ms:\n",
            "                elif False:\n",
        ),
        (
            "16 the count of a lock that memory ended is left to the next leader",
            "            if run.delivery_count and not run.durable\n",
            "            if run.member_id is not None\n",
        ),
        (
            "16 an end that is durable leaves no lock",
            "        if ok and not write.runs:\n            self._note_durable(write)\n",
            "",
        ),
        (
            "16 what was released in memory alone is left to the next leader",
            "self.commit(write, durable=False)",
            "self.commit(write)",
        ),
        (
            "16 a record that was taken again keeps its lock",
            "inside and run.delivery_count == batch.delivery_count and run.state is not ACQUIRED",
            "inside",
        ),
    ),
    *gateway(
        "share_partition/transitions",
        (
            "3 with a dead-letter queue the limit leads to ARCHIVING",
            "        return ARCHIVING if self.config.dead_letter_enabled else ARCHIVED\n",
            "        return ARCHIVED\n",
        ),
        (
            "10 below the start offset a record is archived",
            "        if run.last < self.start_offset:\n            return ARCHIVED\n",
            "",
        ),
        (
            "9 a lock that ended while its write failed ends then",
            "            if run.lock_expires_at_ms <= now_ms:\n                self.time_lock(",
            "            if False:\n                self.time_lock(",
        ),
        (
            "14 a roll-back takes the count back",
            "            if run.state in TERMINAL:\n                self.count_terminal(run, -1)\n",
            "",
        ),
        (
            "14 a transition to a final state counts when it starts",
            "        if state in TERMINAL:\n            self.count_terminal(run, 1)\n",
            "",
        ),
        (
            "9 a committed release can be found again",
            "                made_available |= self.offer(run)\n            elif",
            "                made_available = True\n                self.held_count -= run.size\n            elif",
        ),
        (
            "a failed acknowledgement leaves no reason behind",
            "            run.reason = run.cause = None\n",
            "",
        ),
    ),
    *gateway(
        "share_partition/runs",
        (
            "a delay is persisted beside its state",
            "            if run.reason is not None or run.available_at_ms or forgiven:\n",
            "            if run.reason is not None or forgiven:\n",
        ),
    ),
]
