// A loop over generated code: fetch, handle, acknowledge; renew the locks of what takes long. Copy it into your project.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	api "sharequeue.example/generated"
)

const wait = 10 * time.Second

// Reject is the error of a handler that makes its record a dead letter. Any other error releases the record, until the
// group's delivery limit makes it a dead letter.
type Reject struct{ Reason string }

func (r Reject) Error() string { return r.Reason }

// Refused is a request that the service refused, and that no repeat mends.
type Refused struct{ Problem api.Problem }

func (r Refused) Error() string { return r.Problem.Code + ": " + r.Problem.Detail }

// Worker is one member of a share group. A handler that returns nil accepts its record.
type Worker struct {
	Client       *api.ClientWithResponses
	Group        string
	Topics       []string
	Handle       func(ctx context.Context, record api.ConsumerRecord, batch api.FetchedBatch) error
	MaxRecords   int32         // 0: 100
	LockDuration time.Duration // 0: the group's
	memberID     string
}

// Run handles records until ctx ends. Records that were fetched and not handled by then are released.
func (w *Worker) Run(ctx context.Context) error {
	w.memberID = uuid.NewString()
	pause, fetchID := 100*time.Millisecond, uuid.NewString()
	for ctx.Err() == nil {
		batches, retryAfter, err := w.fetch(ctx, fetchID)
		if errors.As(err, new(Refused)) {
			return err
		} else if err != nil {
			sleep(ctx, max(retryAfter, pause))
			pause = min(2*pause, wait)
		} else {
			pause, fetchID = 100*time.Millisecond, uuid.NewString()
			w.settle(ctx, batches)
		}
	}
	return nil
}

func (w *Worker) fetch(ctx context.Context, id string) ([]api.FetchedBatch, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, wait+10*time.Second)
	defer cancel()
	maxWait, maxRecords := int32(wait.Milliseconds()), cmp.Or(w.MaxRecords, 100)
	body := api.FetchRequest{Topics: &w.Topics, MemberId: &w.memberID, FetchId: &id, MaxWaitMs: &maxWait, MaxRecords: &maxRecords}
	if w.LockDuration != 0 {
		lock := int32(w.LockDuration.Milliseconds())
		body.LockDurationMs = &lock
	}
	answer, err := w.Client.FetchRecordsWithResponse(ctx, w.Group, body)
	if err != nil {
		return nil, 0, err
	}
	if answer.JSON200 == nil {
		retryAfter, err := refusal(answer.Body, answer.HTTPResponse)
		return nil, retryAfter, err
	}
	return answer.JSON200.Batches, 0, nil
}

// settle handles all records, one after another, while a goroutine renews the locks of the batches that are not settled.
func (w *Worker) settle(ctx context.Context, batches []api.FetchedBatch) {
	if len(batches) == 0 {
		return
	}
	settled := make(chan int, len(batches))
	stopped := make(chan struct{})
	go func() { defer close(stopped); w.renew(batches, settled) }()
	for index, batch := range batches {
		w.acknowledge(w.outcomes(ctx, batch))
		settled <- index
	}
	close(settled)
	<-stopped
}

func (w *Worker) outcomes(ctx context.Context, batch api.FetchedBatch) []api.Acknowledgement {
	var outcomes []api.Acknowledgement
	for _, record := range *batch.Records {
		if ctx.Err() != nil { // it was never begun, so this delivery is no attempt
			release := one(batch, record.Offset, batch.LastOffset, api.AcknowledgeTypeRelease, "")
			release.Begun = new(bool)
			return append(outcomes, release)
		}
		word, reason := api.AcknowledgeTypeAccept, ""
		if err := w.Handle(ctx, record, batch); err != nil {
			word, reason = api.AcknowledgeTypeRelease, err.Error()
			if errors.As(err, new(Reject)) {
				word = api.AcknowledgeTypeReject
			}
		}
		outcomes = append(outcomes, one(batch, record.Offset, record.Offset, word, reason))
	}
	return outcomes
}

func (w *Worker) renew(batches []api.FetchedBatch, settled <-chan int) {
	held := slices.Clone(batches)
	for {
		select {
		case _, more := <-settled:
			if !more {
				return
			}
			held = held[1:]
		case <-time.After(time.Duration(batches[0].LockDurationMs) * time.Millisecond / 3):
			var renewals []api.Acknowledgement
			for _, batch := range held {
				renewals = append(renewals, one(batch, batch.FirstOffset, batch.LastOffset, api.AcknowledgeTypeRenew, ""))
			}
			_, _, _ = w.send(renewals) // the next third of the lock tries again
		}
	}
}

// acknowledge repeats until the outcome is known. A repeat is recognised by its delivery count.
func (w *Worker) acknowledge(outcomes []api.Acknowledgement) {
	for deadline := time.Now().Add(30 * time.Second); len(outcomes) > 0 && time.Now().Before(deadline); {
		results, retryAfter, err := w.send(outcomes)
		if errors.As(err, new(Refused)) {
			return // the locks ended: the records come again
		}
		var unknown []api.Acknowledgement
		for index, result := range results {
			if result.Status == api.AcknowledgementStatusUnknown {
				unknown = append(unknown, outcomes[index])
			}
		}
		if err == nil {
			outcomes = unknown
		}
		if len(outcomes) > 0 {
			time.Sleep(max(retryAfter, 500*time.Millisecond))
		}
	}
}

func (w *Worker) send(acknowledgements []api.Acknowledgement) ([]api.AcknowledgementResult, time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second) // what was handled is settled after ctx, too
	defer cancel()
	body := api.AcknowledgeRequest{MemberId: w.memberID, Acknowledgements: acknowledgements}
	answer, err := w.Client.AcknowledgeRecordsWithResponse(ctx, w.Group, nil, body)
	if err != nil {
		return nil, 0, err
	}
	if answer.JSON200 == nil {
		retryAfter, err := refusal(answer.Body, answer.HTTPResponse)
		return nil, retryAfter, err
	}
	return answer.JSON200.Results, 0, nil
}

func one(b api.FetchedBatch, first, last int64, word api.AcknowledgeType, reason string) api.Acknowledgement {
	outcome := api.Acknowledgement{
		Topic: b.Topic, Partition: b.Partition, FirstOffset: first, LastOffset: last, DeliveryCount: &b.DeliveryCount, Type: &word,
	}
	if reason != "" {
		outcome.Reason = &reason
	}
	return outcome
}

// refusal is the Problem of an answer, as an error that a repeat does not mend if it is not retriable.
func refusal(body []byte, response *http.Response) (time.Duration, error) {
	var problem api.Problem
	if err := json.Unmarshal(body, &problem); err == nil && !problem.Retriable {
		return 0, Refused{problem}
	}
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
	return time.Duration(seconds) * time.Second, fmt.Errorf("%s: %.200s", response.Status, body)
}

func sleep(ctx context.Context, pause time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
}
