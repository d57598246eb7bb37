// A loop over generated code: fetch, handle, acknowledge; renew the locks of what takes long. Copy it into your project,
// beside acknowledger.go and producer.go.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"
	api "sharequeue.example/generated"
)

// Reject is the error of a handler that makes its record a dead letter. Any other error releases the record, until the
// group's delivery limit makes it a dead letter.
type Reject struct{ Reason string }

// Release is the error of a handler whose record comes again after Delay, up to 12 hours, in place of the group's backoff.
type Release struct {
	Reason string
	Delay  time.Duration
}

func (r Reject) Error() string  { return r.Reason }
func (r Release) Error() string { return r.Reason }

// Worker is one member of a share group. A handler that returns nil accepts its record.
type Worker struct {
	Client       *api.ClientWithResponses
	Group        string
	Topics       []string
	Handle       func(ctx context.Context, record api.ConsumerRecord, batch api.FetchedBatch) error
	MaxRecords   int32         // 0: 100
	LockDuration time.Duration // 0: the group's
	// OnError gets each acknowledgement that the service refused, or whose lock had ended. nil: they are logged.
	OnError  func(NotAcknowledged)
	memberID string
}

// Run handles records until ctx ends. Records that were fetched and not handled by then are released.
func (w *Worker) Run(ctx context.Context) error {
	w.memberID = uuid.NewString()
	pause, fetchID := firstPause, uuid.NewString()
	for ctx.Err() == nil {
		batches, retryAfter, err := w.fetch(ctx, fetchID)
		if errors.As(err, new(Refused)) {
			return err
		} else if err != nil {
			if pause == firstPause && ctx.Err() == nil {
				log.Printf("no records for the group %s, trying again: %v", w.Group, err)
			}
			sleep(ctx, max(retryAfter, pause))
			pause = min(2*pause, wait)
		} else {
			pause, fetchID = firstPause, uuid.NewString()
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
	answer, err := w.Client.FetchRecords(ctx, w.Group, body)
	if err != nil {
		return nil, 0, err
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, 0, err
	}
	var fetched api.FetchResponse
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber() // a float64 does not hold every number, and one that it does not hold would spoil the whole answer
	if answer.StatusCode != http.StatusOK || decoder.Decode(&fetched) != nil || fetched.Batches == nil {
		retryAfter, err := refusal(raw, answer)
		return nil, retryAfter, err
	}
	return fetched.Batches, 0, nil
}

// settle handles all records, one after another, while a goroutine renews the locks of the batches that are not settled.
func (w *Worker) settle(ctx context.Context, batches []api.FetchedBatch) {
	if len(batches) == 0 {
		return
	}
	settled := make(chan int, len(batches))
	stopped := make(chan struct{})
	go func() { defer close(stopped); w.renew(batches, settled) }()
	next := 0
	defer func() { // there are more after a panic of the handler
		for _, batch := range batches[next:] {
			w.acknowledge([]api.Acknowledgement{neverBegun(batch, batch.FirstOffset)})
		}
	}()
	for index, batch := range batches {
		next = index + 1
		for _, fault := range w.acknowledge(w.outcomes(ctx, batch)) {
			if w.OnError != nil {
				w.OnError(fault)
			} else {
				log.Print(fault)
			}
		}
		settled <- index
	}
	close(settled)
	<-stopped
}

func (w *Worker) outcomes(ctx context.Context, batch api.FetchedBatch) []api.Acknowledgement {
	var outcomes []api.Acknowledgement
	inHand := int64(-1)
	defer func() {
		if inHand >= 0 { // the handler panicked
			outcomes = append(outcomes, one(batch, inHand, inHand, api.AcknowledgeTypeRelease, "the handler panicked"))
			if inHand < batch.LastOffset {
				outcomes = append(outcomes, neverBegun(batch, inHand+1))
			}
			w.acknowledge(outcomes)
		}
	}()
	for _, record := range *batch.Records {
		if ctx.Err() != nil {
			return append(outcomes, neverBegun(batch, record.Offset))
		}
		inHand = record.Offset
		outcomes = append(outcomes, outcome(w.Handle(ctx, record, batch), batch, record.Offset))
		inHand = -1
	}
	return outcomes
}

// neverBegun releases a batch from an offset on: the handler did not begin with it, so this delivery is no attempt.
func neverBegun(batch api.FetchedBatch, first int64) api.Acknowledgement {
	release := one(batch, first, batch.LastOffset, api.AcknowledgeTypeRelease, "")
	release.Begun = new(bool)
	return release
}

func outcome(err error, batch api.FetchedBatch, offset int64) api.Acknowledgement {
	if err == nil {
		return one(batch, offset, offset, api.AcknowledgeTypeAccept, "")
	}
	if errors.As(err, new(Reject)) || errors.As(err, new(*Reject)) {
		return one(batch, offset, offset, api.AcknowledgeTypeReject, err.Error())
	}
	released := one(batch, offset, offset, api.AcknowledgeTypeRelease, err.Error())
	wanted := &Release{}
	if errors.As(err, wanted) || errors.As(err, &wanted) {
		delay := int32(min(max(wanted.Delay, 0), 12*time.Hour).Milliseconds())
		released.DelayMs = &delay
	} else {
		log.Printf("the handler failed, and %s/%d/%d is released (delivery %d): %v", batch.Topic, batch.Partition, offset, batch.Attempt, err)
	}
	return released
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
