// Acknowledges over generated code, until each outcome is known. Copy it into your project, beside worker.go.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	api "sharequeue.example/generated"
)

const notOwn = "another member has finished these records, or they were deleted"

// NotAcknowledged is an acknowledgement that the service refused, or whose lock had ended: its records come again,
// unless another member has finished them. Code is of the Problem, for example INVALID_REQUEST or INVALID_RECORD_STATE, or
// UNEXPECTED_ANSWER if something else than a gateway answered; it is empty if nothing did.
type NotAcknowledged struct {
	Acknowledgement api.Acknowledgement
	Code, Detail    string
}

func (n NotAcknowledged) Error() string {
	a := n.Acknowledgement
	return fmt.Sprintf("%s of %s/%d/%d was not applied: %s %s", *a.Type, a.Topic, a.Partition, a.FirstOffset, n.Code, n.Detail)
}

// acknowledge repeats for 30 s what has no known outcome: a repeat is recognised by its delivery count. A request that is
// refused for what it says is sent again in halves, so that one bad acknowledgement spoils no other. It also acknowledges
// after the context of Run has ended. It returns those that were refused or failed.
func (w *Worker) acknowledge(outcomes []api.Acknowledgement) []NotAcknowledged {
	var lost []NotAcknowledged
	deadline := time.Now().Add(30 * time.Second)
	type some struct {
		part    []api.Acknowledgement
		doubted bool // they may have had their effect, and the answer was lost
	}
	parts := []some{{outcomes, false}}
	for len(parts) > 0 {
		part, doubted := parts[len(parts)-1].part, parts[len(parts)-1].doubted
		parts = parts[:len(parts)-1]
		if len(part) == 0 {
			continue
		}
		results, retryAfter, err := w.send(part)
		last, refused := time.Now().After(deadline), Refused{}
		switch isRefused := errors.As(err, &refused); {
		case isRefused && len(part) > 1 && refused.forWhatItSays():
			parts = append(parts, some{part[len(part)/2:], doubted}, some{part[:len(part)/2], doubted})
		case isRefused || err != nil && last:
			code, detail := refused.Problem.Code, cmp.Or(refused.Problem.Detail, err.Error())
			for _, outcome := range part {
				lost = append(lost, NotAcknowledged{outcome, code, detail})
			}
		case err != nil:
			parts = append(parts, some{part, true})
			time.Sleep(max(retryAfter, 500*time.Millisecond))
		default:
			var unknown []api.Acknowledgement
			for index, result := range results {
				again := result.Status == api.AcknowledgementStatusUnknown
				if again && !last {
					unknown = append(unknown, part[index])
				} else if result.Status == api.AcknowledgementStatusIgnored && !doubted {
					lost = append(lost, NotAcknowledged{part[index], "INVALID_RECORD_STATE", notOwn})
				} else if again || result.Status == api.AcknowledgementStatusFailed {
					code, detail := cmp.Or(result.Code, new(string)), cmp.Or(result.Detail, new(string))
					lost = append(lost, NotAcknowledged{part[index], *code, *detail})
				}
			}
			if len(unknown) > 0 {
				parts = append(parts, some{unknown, true})
				time.Sleep(500 * time.Millisecond)
			}
		}
	}
	return lost
}

func (r Refused) forWhatItSays() bool {
	switch r.Problem.Status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return true
	}
	return false
}

func (w *Worker) send(acknowledgements []api.Acknowledgement) ([]api.AcknowledgementResult, time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	body := api.AcknowledgeRequest{MemberId: w.memberID, Acknowledgements: acknowledgements}
	answer, err := w.Client.AcknowledgeRecordsWithResponse(ctx, w.Group, nil, body)
	if err != nil {
		return nil, 0, err
	}
	if answer.JSON200 == nil || len(answer.JSON200.Results) != len(acknowledgements) {
		retryAfter, err := refusal(answer.Body, answer.HTTPResponse)
		return nil, retryAfter, err
	}
	return answer.JSON200.Results, 0, nil
}

func one(b api.FetchedBatch, first, last int64, word api.AcknowledgeType, reason string) api.Acknowledgement {
	outcome := api.Acknowledgement{
		Topic: b.Topic, TopicId: &b.TopicId, Partition: b.Partition, FirstOffset: first, LastOffset: last, DeliveryCount: &b.DeliveryCount,
		Type: &word,
	}
	if reason != "" {
		text := []rune(reason)
		reason = string(text[:min(len(text), 1024)])
		outcome.Reason = &reason
	}
	return outcome
}
