// Sends records over generated code. A repeat stores nothing twice: all tries have one idempotency key. Copy it into your
// project. worker.go and acknowledger.go take from here which requests to repeat, and when.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	api "sharequeue.example/generated"
)

const wait, firstPause = 10 * time.Second, 100 * time.Millisecond

// Producer sends records to topics, as long as the context of a Send lets it try.
type Producer struct {
	Client *api.ClientWithResponses
	// Inject writes headers for records, as the function of that name of OpenTelemetry's propagators does with
	// traceparent. nil: there are none.
	Inject func(ctx context.Context, headers map[string]string)
}

// Send stores the records. When it returns nil, they are on disk. key names them for 24 hours, in at most 128 characters;
// if it is empty, Send makes one. After an error call it again with the same key and the same records: they are stored
// once, and Inject leaves them as they are. It returns Refused if no repeat helps, and else the last error when ctx ends.
func (p *Producer) Send(ctx context.Context, topic string, records []api.ProduceRecord, key string) ([]api.ProducedRecord, error) {
	if p.Inject != nil && key == "" {
		records = slices.Clone(records)
		for index, record := range records {
			made := map[string]string{}
			p.Inject(ctx, made)
			if record.Headers != nil {
				maps.Copy(made, *record.Headers)
			}
			records[index].Headers = &made
		}
	}
	key = cmp.Or(key, uuid.NewString())
	for pause := firstPause; ; pause = min(2*pause, wait) {
		stored, retryAfter, err := p.try(ctx, topic, records, key)
		if err == nil || errors.As(err, new(Refused)) {
			return stored, err
		}
		if pause == firstPause && ctx.Err() == nil {
			log.Printf("no answer from the topic %s, trying again: %v", topic, err)
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
	if answer.JSON200 == nil || len(answer.JSON200.Records) != len(records) {
		retryAfter, err := refusal(answer.Body, answer.HTTPResponse)
		return nil, retryAfter, err
	}
	return answer.JSON200.Records, 0, nil
}

// Refused is a request that the service refused, and that no repeat mends.
type Refused struct{ Problem api.Problem }

func (r Refused) Error() string { return r.Problem.Code + ": " + r.Problem.Detail }

// refusal is the Problem of an answer, as an error that a repeat does not mend if it is not retriable.
func refusal(body []byte, response *http.Response) (time.Duration, error) {
	var problem api.Problem
	if json.Unmarshal(body, &problem) != nil || problem.Code == "" { // a proxy answered
		status := response.StatusCode
		detail := fmt.Sprintf("%s answered %s, and is not a gateway or wants a login: %.100q", response.Request.URL, response.Status, body)
		problem = api.Problem{Status: int32(status), Code: "UNEXPECTED_ANSWER", Detail: detail}
		problem.Retriable = status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout
	}
	if !problem.Retriable {
		return 0, Refused{problem}
	}
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
	return time.Duration(seconds) * time.Second, fmt.Errorf("%s: %s", problem.Code, problem.Detail)
}

func sleep(ctx context.Context, pause time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
}
