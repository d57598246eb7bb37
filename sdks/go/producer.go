// Sends records over generated code. A repeat stores nothing twice: all tries have one idempotency key. Copy it into your
// project, beside worker.go.
package main

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	api "sharequeue.example/generated"
)

// Producer sends records to topics, as long as the context of a Send lets it try.
type Producer struct{ Client *api.ClientWithResponses }

// Send stores the records. When it returns nil, they are on disk. key names them for 24 hours, in at most 128 characters;
// if it is empty, Send makes one. After an error call it again with the same key and the same records: they are stored
// once. It returns Refused if no repeat helps, and else the last error when ctx ends.
func (p *Producer) Send(ctx context.Context, topic string, records []api.ProduceRecord, key string) ([]api.ProducedRecord, error) {
	key = cmp.Or(key, uuid.NewString())
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, wait) {
		stored, retryAfter, err := p.try(ctx, topic, records, key)
		if err == nil || errors.As(err, new(Refused)) {
			return stored, err
		}
		pause = max(retryAfter, pause)
		sleep(ctx, pause)
		if ctx.Err() != nil {
			return nil, err
		}
	}
}

func (p *Producer) try(ctx context.Context, topic string, records []api.ProduceRecord, key string) ([]api.ProducedRecord, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	body := api.ProduceRequest{Records: records}
	answer, err := p.Client.ProduceRecordsWithResponse(ctx, topic, &api.ProduceRecordsParams{IdempotencyKey: &key}, body)
	if err != nil {
		return nil, 0, err
	}
	if answer.JSON200 == nil {
		retryAfter, err := refusal(answer.Body, answer.HTTPResponse)
		return nil, retryAfter, err
	}
	return answer.JSON200.Records, 0, nil
}
