"""The record log on Kafka. The records are in the topics of a cluster; PostgreSQL has what is small.

An append without a key goes to Kafka at once. One that must happen once, because it has a key or writes dead letters,
begins with an *intent*, a row in PostgreSQL:

    intent durable ─▶ Kafka transaction, each record names the intent ─▶ outcome durable, the intent is removed
      (nothing yet)      (all its records or none)                          (the answer is stored with the key)

A crash or a lost answer leaves the intent open. The next one who needs to know *settles* it: it fences the producer
that the intent names, so that nothing of it can be appended any more, waits until the last stable offset has passed the
end of the log, and looks behind the ends that the intent noted. Either all records are there, and the outcome is
written, or none is, and the intent is removed.

    appending             plain appends, and appends with a key
    dead_letters          dead letters and redriven ones
    once                  begins, settles and sweeps intents
    intent_store          the SQL of intents
    intents, new_records  pure: an intent, and a record as Kafka stores it
    faults                the errors of brokers as errors of calls
"""
