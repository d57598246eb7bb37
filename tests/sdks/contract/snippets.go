package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	api "sharequeue.example/generated"
)

// snippets runs the code that docs/sdks.md shows in its text and tables.
func snippets(client *api.ClientWithResponses) error {
	for _, each := range []func(context.Context, *api.ClientWithResponses) error{sendTwice, settle, readDeadLetters, tell} {
		if err := each(context.Background(), client); err != nil {
			return err
		}
	}
	return nil
}

// sendTwice fails if a repeat with the key stores records.
func sendTwice(ctx context.Context, client *api.ClientWithResponses) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	key := "ann"
	ann := api.ProduceRecord{Key: &key, Value: map[string]any{"total": 3}, Headers: &map[string]string{"from": "web"}}
	batch := []api.ProduceRecord{ann, {Value: "bob"}}
	producer := Producer{Client: client}
	first, failed := producer.Send(ctx, "orders", batch, "order-17")
	again, err := producer.Send(ctx, "orders", batch, "order-17")
	if err = errors.Join(failed, err); err == nil && !slices.Equal(first, again) {
		err = unexpected{fmt.Sprint("stored ", first, ", and then ", again)}
	}
	return err
}

// settle lets Ann's record come again in a minute, and rejects Bob's after SIGTERM, which ends the worker.
func settle(_ context.Context, client *api.ClientWithResponses) error {
	handled := []string{}
	handle := func(ctx context.Context, record api.ConsumerRecord, _ api.FetchedBatch) error {
		if record.Key == nil {
			handled = append(handled, fmt.Sprint(record.Value))
			if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
				return err
			}
			<-ctx.Done()
			return Reject{"no address"}
		}
		handled = append(handled, *record.Key, fmt.Sprint(record.Value.(map[string]any)["total"]), (*record.Headers)["from"])
		return Release{"busy", time.Minute}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	worker := Worker{Client: client, Group: "billing", Topics: []string{"orders"}, Handle: handle, MaxRecords: 10, LockDuration: time.Minute}
	err := worker.Run(ctx)
	if err == nil && !slices.Equal(handled, []string{"ann", "3", "web", "bob"}) {
		err = unexpected{fmt.Sprint("handled ", handled)}
	}
	return err
}

// readDeadLetters waits for Bob's: the service writes it a moment after the reject.
func readDeadLetters(ctx context.Context, client *api.ClientWithResponses) error {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); sleep(ctx, 100*time.Millisecond) {
		answer, err := client.ReadRecordsWithResponse(ctx, "dlq.billing", 0, &api.ReadRecordsParams{Offset: new(int64)})
		if err != nil {
			return err
		}
		if answer.ApplicationproblemJSON404 != nil {
			continue // the topic does not exist yet
		}
		for _, letter := range answer.JSON200.Records {
			if letter.Value == "bob" && (*letter.Headers)["__dlq.errors.reason"] == "no address" {
				return nil
			}
		}
	}
	return unexpected{"there is no dead letter"}
}

// tell fails if an acknowledgement fails, or if Ann's record comes again.
func tell(ctx context.Context, client *api.ClientWithResponses) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	inject := func(_ context.Context, headers map[string]string) {
		headers["traceparent"] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	}
	producer := Producer{Client: client, Inject: inject}
	if _, err := producer.Send(ctx, "orders", []api.ProduceRecord{{Value: "carol"}}, ""); err != nil {
		return err
	}
	var handled, lost []string
	handler := func(fault NotAcknowledged) { lost = append(lost, fault.Code) }
	handle := func(_ context.Context, record api.ConsumerRecord, _ api.FetchedBatch) error {
		handled = append(handled, fmt.Sprint(record.Value))
		stop()
		return nil
	}
	worker := Worker{Client: client, Group: "billing", Topics: []string{"orders"}, Handle: handle, OnError: handler}
	err := worker.Run(ctx)
	if err == nil && !(slices.Equal(handled, []string{"carol"}) && len(lost) == 0) {
		err = unexpected{fmt.Sprint("handled ", handled, ", lost ", lost)}
	}
	return err
}
