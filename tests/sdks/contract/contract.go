// Plays the cases of a file with the generated Go client. The environment says where the gateway is.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/oapi-codegen/runtime/types"

	api "sharequeue.example/generated"
)

const patience = 60 * time.Second
const idle = 15 * time.Second // a fetch without an answer ends after 20

type object = map[string]any

type step struct {
	Call          string
	Path          object
	Query         object
	Headers       object
	Body          any
	Bytes         string
	Stub          bool
	Key           string
	Expect        object
	Save          map[string]string
	Eventually    bool
	MinMs         int64 `json:"min_ms"`
	CancelAfterMs int64 `json:"cancel_after_ms"`
	Meanwhile     *struct {
		AfterMs int64 `json:"after_ms"`
		Step    step
	}
}

type work struct {
	Records        []api.ProduceRecord
	LockDurationMs int64 `json:"lock_duration_ms"`
	SlowMs         int64 `json:"slow_ms"`
	Handled        []string
	Lost           []string
	ThroughStub    bool `json:"through_stub"`
	Interrupted    bool
	Trace          string
	Refused        map[string][]string
}

type testCase struct {
	ID     string
	Steps  []step
	Worker *work
	Then   []step
}

type unexpected struct{ said string }

func (u unexpected) Error() string { return u.said }

var (
	plain = client("SHAREQUEUE_URL", nil)
	stub  = client("SHAREQUEUE_STUB_URL", nil)
)

func withToken(token func() string) api.ClientOption {
	return api.WithRequestEditorFn(func(_ context.Context, request *http.Request) error {
		request.Header.Set("Authorization", "Bearer "+token())
		return nil
	})
}

// keyed is a client of the gateway that wants keys: with the good one, with a poor one that has no rights, or with none.
func keyed(name string) *api.ClientWithResponses {
	token := func() string { return os.Getenv("SHAREQUEUE_KEY_" + strings.ToUpper(name)) }
	if token() == "" {
		return client("SHAREQUEUE_GUARDED_URL", nil)
	}
	return client("SHAREQUEUE_GUARDED_URL", withToken(token))
}

func client(variable string, option api.ClientOption) *api.ClientWithResponses {
	var options []api.ClientOption
	if option != nil {
		options = append(options, option)
	}
	made, err := api.NewClientWithResponses(os.Getenv(variable), options...)
	if err != nil {
		panic(err)
	}
	return made
}

// given is a step whose names are filled in.
type given struct {
	path, parameters object
	body             any
	raw              []byte
}

func (g given) text(name string) string { return fmt.Sprint(g.path[name]) }

func (g given) transaction() types.UUID { return as[types.UUID](g.path["transaction"]) }

func (g given) partition() int32 { return int32(g.path["partition"].(float64)) }

// as is a JSON value in the generated type.
func as[T any](value any) T {
	var made T
	raw, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(raw, &made)
	}
	if err != nil {
		panic(fmt.Sprintf("%T: %v", made, err))
	}
	return made
}

type called func(context.Context, *api.ClientWithResponses, given) (any, error)

// One typed call for each operation.
var calls = map[string]called{
	"createTopic": func(ctx context.Context, c *api.ClientWithResponses, g given) (any, error) {
		return c.CreateTopicWithResponse(ctx, as[api.CreateTopicRequest](g.body))
	},
	"listTopics": func(ctx context.Context, c *api.ClientWithResponses, g given) (any, error) {
		return c.ListTopicsWithResponse(ctx, as[*api.ListTopicsParams](g.parameters))
	},
	"describeTopic": func(ctx context.Context, c *api.ClientWithResponses, g given) (any, error) {
		return c.DescribeTopicWithResponse(ctx, g.text("topic"))
	},
	"updateTopic": func(ctx context.Context, c *api.ClientWithResponses, g given) (any, error) {
		return c.UpdateTopicWithResponse(ctx, g.text("topic"), as[api.UpdateTopicRequest](g.body))
	},
	"deleteTopic": func(ctx context.Context, c *api.ClientWithResponses, g given) (any, error) {
		return c.DeleteTopicWithResponse(ctx, g.text("topic"))
	},
	"deleteRecords": func(ctx context.Context, c *api.ClientWithResponses, g given) (any, error) {
		return c.DeleteRecordsWithResponse(ctx, g.text("topic"), as[api.DeleteRecordsRequest](g.body))
	},
	"produceRecords": func(ctx context.Context, c *api.ClientWithResponses, g given) (any, error) {
		parameters := as[*api.ProduceRecordsParams](g.parameters)
		return c.ProduceRecordsWithResponse(ctx, g.text("topic"), parameters, as[api.ProduceRequest](g.body))
	},
	"produceArrow": func(ctx context.Context, c *api.ClientWithResponses, g given) (any, error) {
		parameters, rows := as[*api.ProduceArrowParams](g.parameters), bytes.NewReader(g.raw)
		arrow := "application/vnd.apache.arrow.stream"
		return c.ProduceArrowWithBodyWithResponse(ctx, g.text("topic"), parameters, arrow, rows)
	},
	"produceRawRecord": func(ctx context.Context, c *api.ClientWithResponses, g given) (any, error) {
		parameters, raw := as[*api.ProduceRawRecordParams](g.parameters), bytes.NewReader(g.raw)
		return c.ProduceRawRecordWithBodyWithResponse(ctx, g.text("topic"), parameters, "application/octet-stream", raw)
	},
	"readRecords": func(ctx context.Context, c *api.ClientWithResponses, g given) (any, error) {
		return c.ReadRecordsWithResponse(ctx, g.text("topic"), g.partition(), as[*api.ReadRecordsParams](g.parameters))
	},
	"scheduleRecords": func(ctx context.Context, c *api.ClientWithResponses, g given) (any, error) {
		parameters := as[*api.ScheduleRecordsParams](g.parameters)
		return c.ScheduleRecordsWithResponse(ctx, g.text("topic"), parameters, as[api.ScheduleRequest](g.body))
	},
	"listScheduledRecords": func(ctx context.Context, c *api.ClientWithResponses, g given) (any, error) {
		return c.ListScheduledRecordsWithResponse(ctx, g.text("topic"), as[*api.ListScheduledRecordsParams](g.parameters))
	},
	"cancelScheduledRecords": func(ctx context.Context, c *api.ClientWithResponses, g given) (any, error) {
		return c.CancelScheduledRecordsWithResponse(ctx, g.text("topic"), as[api.CancelScheduledRequest](g.body))
	},
	"lookUpRecord": func(ctx context.Context, c *api.ClientWithResponses, g given) (any, error) {
		offset := as[int64](g.path["offset"])
		return c.LookUpRecordWithResponse(ctx, g.text("group"), g.text("topic"), g.partition(), offset)
	},
	"listRecordBatches": func(ctx context.Context, c *api.ClientWithResponses, g given) (any, error) {
		parameters := as[*api.ListRecordBatchesParams](g.parameters)
		return c.ListRecordBatchesWithResponse(ctx, g.text("topic"), g.partition(), parameters)
	},
	"replaceRecordBatches": func(ctx context.Context, c *api.ClientWithResponses, g given) (any, error) {
		body := as[api.ReplaceRecordBatchesRequest](g.body)
		return c.ReplaceRecordBatchesWithResponse(ctx, g.text("topic"), g.partition(), body)
	},
	"fetchRecords": func(ctx context.Context, c *api.ClientWithResponses, g given) (any, error) {
		return c.FetchRecordsWithResponse(ctx, g.text("group"), as[api.FetchRequest](g.body))
	},
	"acknowledgeRecords": func(ctx context.Context, c *api.ClientWithResponses, g given) (any, error) {
		parameters := as[*api.AcknowledgeRecordsParams](g.parameters)
		return c.AcknowledgeRecordsWithResponse(ctx, g.text("group"), parameters, as[api.AcknowledgeRequest](g.body))
	},
	"beginTransaction": func(ctx context.Context, c *api.ClientWithResponses, g given) (any, error) {
		return c.BeginTransactionWithResponse(ctx, as[api.BeginTransactionRequest](g.body))
	},
	"listTransactions": func(ctx context.Context, c *api.ClientWithResponses, g given) (any, error) {
		return c.ListTransactionsWithResponse(ctx, as[*api.ListTransactionsParams](g.parameters))
	},
	"describeTransaction": func(ctx context.Context, c *api.ClientWithResponses, g given) (any, error) {
		return c.DescribeTransactionWithResponse(ctx, g.transaction())
	},
	"commitTransaction": func(ctx context.Context, c *api.ClientWithResponses, g given) (any, error) {
		body := as[api.CommitTransactionRequest](g.body)
		return c.CommitTransactionWithResponse(ctx, g.transaction(), body)
	},
	"abortTransaction": func(ctx context.Context, c *api.ClientWithResponses, g given) (any, error) {
		body := as[api.EndTransactionRequest](g.body)
		return c.AbortTransactionWithResponse(ctx, g.transaction(), body)
	},
	"terminateTransaction": func(ctx context.Context, c *api.ClientWithResponses, g given) (any, error) {
		body := as[api.EndTransactionRequest](g.body)
		return c.TerminateTransactionWithResponse(ctx, g.transaction(), body)
	},
	"shareGroupHeartbeat": func(ctx context.Context, c *api.ClientWithResponses, g given) (any, error) {
		parameters := as[*api.ShareGroupHeartbeatParams](g.parameters)
		return c.ShareGroupHeartbeatWithResponse(ctx, g.text("group"), parameters, as[api.ShareGroupHeartbeatRequest](g.body))
	},
	"leaveShareGroup": func(ctx context.Context, c *api.ClientWithResponses, g given) (any, error) {
		return c.LeaveShareGroupWithResponse(ctx, g.text("group"), g.text("member_id"))
	},
	"listShareGroups": func(ctx context.Context, c *api.ClientWithResponses, g given) (any, error) {
		return c.ListShareGroupsWithResponse(ctx, as[*api.ListShareGroupsParams](g.parameters))
	},
	"describeShareGroup": func(ctx context.Context, c *api.ClientWithResponses, g given) (any, error) {
		return c.DescribeShareGroupWithResponse(ctx, g.text("group"), as[*api.DescribeShareGroupParams](g.parameters))
	},
	"deleteShareGroup": func(ctx context.Context, c *api.ClientWithResponses, g given) (any, error) {
		return c.DeleteShareGroupWithResponse(ctx, g.text("group"), as[*api.DeleteShareGroupParams](g.parameters))
	},
	"getShareGroupConfig": func(ctx context.Context, c *api.ClientWithResponses, g given) (any, error) {
		return c.GetShareGroupConfigWithResponse(ctx, g.text("group"))
	},
	"getShareGroupServiceConfig": func(ctx context.Context, c *api.ClientWithResponses, g given) (any, error) {
		return c.GetShareGroupServiceConfigWithResponse(ctx, g.text("group"))
	},
	"updateShareGroupConfig": func(ctx context.Context, c *api.ClientWithResponses, g given) (any, error) {
		return c.UpdateShareGroupConfigWithResponse(ctx, g.text("group"), as[api.UpdateShareGroupConfigRequest](g.body))
	},
	"listShareGroupOffsets": func(ctx context.Context, c *api.ClientWithResponses, g given) (any, error) {
		return c.ListShareGroupOffsetsWithResponse(ctx, g.text("group"), nil)
	},
	"resetShareGroupOffsets": func(ctx context.Context, c *api.ClientWithResponses, g given) (any, error) {
		return c.ResetShareGroupOffsetsWithResponse(ctx, g.text("group"), as[api.ResetShareGroupOffsetsRequest](g.body))
	},
	"deleteShareGroupOffsets": func(ctx context.Context, c *api.ClientWithResponses, g given) (any, error) {
		parameters := as[*api.DeleteShareGroupOffsetsParams](g.parameters)
		return c.DeleteShareGroupOffsetsWithResponse(ctx, g.text("group"), g.text("topic"), parameters)
	},
	"listInFlightRecords": func(ctx context.Context, c *api.ClientWithResponses, g given) (any, error) {
		return c.ListInFlightRecordsWithResponse(ctx, g.text("group"), as[*api.ListInFlightRecordsParams](g.parameters))
	},
	"redriveDeadLetters": func(ctx context.Context, c *api.ClientWithResponses, g given) (any, error) {
		return c.RedriveDeadLettersWithResponse(ctx, g.text("group"), as[api.RedriveDeadLettersRequest](g.body))
	},
	"listActivity": func(ctx context.Context, c *api.ClientWithResponses, g given) (any, error) {
		return c.ListActivityWithResponse(ctx, as[*api.ListActivityParams](g.parameters))
	},
	"livez": func(ctx context.Context, c *api.ClientWithResponses, _ given) (any, error) {
		return c.LivezWithResponse(ctx)
	},
	"readyz": func(ctx context.Context, c *api.ClientWithResponses, g given) (any, error) {
		return c.ReadyzWithResponse(ctx, as[*api.ReadyzParams](g.parameters))
	},
	"metrics": func(ctx context.Context, c *api.ClientWithResponses, _ given) (any, error) {
		return c.MetricsWithResponse(ctx)
	},
}

type player struct{ values object }

func (p *player) play(s step) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		err := p.playOnce(s)
		if !errors.As(err, new(unexpected)) || !s.Eventually || time.Now().After(deadline) {
			return err
		}
	}
}

func (p *player) playOnce(s step) error {
	other := make(chan error, 1)
	if s.Meanwhile == nil {
		other <- nil
	} else {
		time.AfterFunc(time.Duration(s.Meanwhile.AfterMs)*time.Millisecond, func() { other <- p.play(s.Meanwhile.Step) })
	}
	started := time.Now()
	found, err := p.call(s)
	took := time.Since(started).Milliseconds()
	if err = errors.Join(err, <-other); err != nil || s.Expect == nil {
		return err
	}
	if err := check(p.filled(s.Expect), found, ""); err != nil {
		return err
	}
	if took < s.MinMs {
		return unexpected{fmt.Sprintf("it took %d ms", took)}
	}
	for name, place := range s.Save {
		value := found["answer"]
		for part := range strings.SplitSeq(place, ".") {
			if list, ok := value.([]any); ok {
				index, _ := strconv.Atoi(part)
				value = list[index]
			} else {
				value = value.(object)[part]
			}
		}
		p.values[name] = value
	}
	return nil
}

// call answers what the typed answer or the typed Problem holds, with the status.
func (p *player) call(s step) (object, error) {
	if s.Call == "streamRecords" {
		return p.stream(s)
	}
	gateway := plain
	if s.Key != "" {
		gateway = keyed(s.Key)
	} else if s.Stub {
		gateway = stub
	}
	limit := patience
	if s.CancelAfterMs > 0 {
		limit = time.Duration(s.CancelAfterMs) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	parameters := object{}
	for _, more := range []object{s.Query, s.Headers} {
		for name, value := range more {
			parameters[name] = p.filled(value)
		}
	}
	path, _ := p.filled(s.Path).(object)
	raw, _ := base64.StdEncoding.DecodeString(s.Bytes)
	answer, err := calls[s.Call](ctx, gateway, given{path, parameters, p.filled(s.Body), raw})
	if err != nil {
		if s.CancelAfterMs > 0 {
			return object{}, nil
		}
		return nil, err
	}
	return found(reflect.ValueOf(answer).Elem())
}

// stream answers the first events of a stream, each with its id. Generated code would wait for the end of the stream.
func (p *player) stream(s step) (object, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	query := url.Values{}
	for name, value := range p.filled(s.Query).(object) {
		query.Set(name, fmt.Sprint(value))
	}
	group := url.PathEscape(p.filled(s.Path).(object)["group"].(string))
	address := os.Getenv("SHAREQUEUE_URL") + "/v1/share-groups/" + group + "/stream?" + query.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	for name, value := range p.filled(s.Headers).(object) {
		request.Header.Set(name, fmt.Sprint(value))
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	status := float64(response.StatusCode)
	if response.StatusCode != http.StatusOK {
		var problem any
		err := json.NewDecoder(response.Body).Decode(&problem)
		return object{"status": status, "problem": problem}, err
	}
	wanted := s.Expect["answer"].(object)["events"].([]any)
	events, id := []any{}, ""
	for lines := bufio.NewScanner(response.Body); len(events) < len(wanted) && lines.Scan(); {
		switch name, value, _ := strings.Cut(lines.Text(), ": "); name {
		case "id":
			id = value
		case "data":
			var data any
			if err := json.Unmarshal([]byte(value), &data); err != nil {
				return nil, err
			}
			events = append(events, object{"id": id, "data": data})
		}
	}
	return object{"status": status, "answer": object{"events": events}}, nil
}

func found(answer reflect.Value) (object, error) {
	response := answer.FieldByName("HTTPResponse").Interface().(*http.Response)
	found := object{"status": float64(response.StatusCode)}
	if after := response.Header.Get("Retry-After"); after != "" {
		found["retry_after"] = after
	}
	for index := range answer.NumField() {
		name, field := answer.Type().Field(index).Name, answer.Field(index)
		if field.Kind() != reflect.Pointer || field.IsNil() || name == "HTTPResponse" {
			continue
		}
		if strings.HasPrefix(name, "JSON") {
			found["answer"] = as[any](field.Interface())
		} else {
			found["problem"] = as[any](field.Interface())
		}
	}
	if raw := answer.FieldByName("Body").Bytes(); found["answer"] == nil && response.StatusCode == 200 {
		found["answer"] = string(raw)
	}
	if response.StatusCode >= 400 && found["problem"] == nil {
		return nil, unexpected{fmt.Sprintf("%d is not a typed Problem", response.StatusCode)}
	}
	return found, nil
}

var name = regexp.MustCompile(`\$\{(\w+)\}`)

func (p *player) filled(value any) any {
	switch value := value.(type) {
	case string:
		if whole := name.FindStringSubmatch(value); whole != nil && whole[0] == value {
			return p.values[whole[1]]
		}
		return name.ReplaceAllStringFunc(value, func(found string) string { return fmt.Sprint(p.values[found[2:len(found)-1]]) })
	case []any:
		made := make([]any, len(value))
		for index, item := range value {
			made[index] = p.filled(item)
		}
		return made
	case object:
		made := object{}
		for name, item := range value {
			made[name] = p.filled(item)
		}
		return made
	}
	return value
}

// work stores each record once, and handles all in the order of Handled.
func (p *player) work(w work) error {
	topic, group := p.values["topic"].(string), p.values["group"].(string)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	gateway, producer := plain, Producer{Client: stub} // which loses an answer, and then refuses
	if w.Refused != nil {
		gateway = keyed("good")
		producer.Client = gateway
	}
	if w.Trace != "" {
		producer.Inject = func(_ context.Context, headers map[string]string) { headers["traceparent"] = w.Trace }
	}
	if _, err := producer.Send(ctx, topic, w.Records, ""); err != nil {
		return err
	}
	if w.ThroughStub {
		gateway = stub
	}
	handled, lost := []string{}, []string{}
	worker := Worker{Client: gateway, Group: group, Topics: []string{topic}, LockDuration: time.Duration(w.LockDurationMs) * time.Millisecond}
	worker.OnError = func(fault NotAcknowledged) {
		lost = append(lost, fmt.Sprint(fault.Acknowledgement.FirstOffset, " ", fault.Code))
	}
	worker.Handle = func(ctx context.Context, record api.ConsumerRecord, batch api.FetchedBatch) error {
		first := batch.DeliveryCount == 1
		switch {
		case record.Value == "bad" && first:
			return errors.New("not today" + strings.Repeat("…", 1024)) // a reason holds 1,024 characters
		case record.Value == "at once" && first:
			return &Release{"not yet \xff", 0} // which is not the backoff of the group
		case record.Value == "refused" && first:
			return Release{"the stub refuses this", 0}
		case record.Value == "interrupt":
			cancel()
			return ctx.Err()
		case record.Value == "slow":
			time.Sleep(time.Duration(w.SlowMs) * time.Millisecond)
		}
		named := record.Value
		if _, number := named.(json.Number); number {
			named = "number"
		}
		if w.Trace != "" {
			named = (*record.Headers)["traceparent"]
		}
		if handled = append(handled, fmt.Sprint(named, " ", batch.DeliveryCount)); len(handled) == len(w.Records) {
			cancel()
		}
		return nil
	}
	if err := worker.Run(ctx); err != nil {
		return err
	}
	if !slices.Equal(handled, w.Handled) || !slices.Equal(lost, w.Lost) {
		return unexpected{fmt.Sprintf("handled: %v, lost: %v", handled, lost)}
	}
	for key, codes := range w.Refused {
		if err := meetRefusals(keyed(key), group, topic, codes); err != nil {
			return err
		}
	}
	if w.Interrupted {
		return errors.Join(endIdle(group, "empty"), endIdle(group, "away"), meetLoginPage(group), panics(topic))
	}
	return nil
}

// endIdle ends the context of a worker that waits for records, or for the service.
func endIdle(group, topic string) error {
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(1500*time.Millisecond, cancel)
	started := time.Now()
	waiting := Worker{Client: stub, Group: group, Topics: []string{topic}}
	if err := waiting.Run(ctx); err != nil || time.Since(started) > idle {
		return unexpected{fmt.Sprint("a worker of ", topic, " goes on after its context: ", err)}
	}
	return nil
}

// meetLoginPage finds no success in a proxy's login page, and no reason to go on for ever.
func meetLoginPage(group string) error {
	for _, topic := range []string{"login-302", "login-200", "login-401", "login-403", "login-json"} {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_, sent := (&Producer{Client: stub}).Send(ctx, topic, []api.ProduceRecord{{Value: "one"}}, "")
		worker := Worker{Client: stub, Group: group, Topics: []string{topic}}
		for _, err := range []error{sent, worker.Run(ctx)} {
			refused := Refused{}
			if !errors.As(err, &refused) || refused.Problem.Code != "UNEXPECTED_ANSWER" || !strings.Contains(err.Error(), os.Getenv("SHAREQUEUE_STUB_URL")) ||
				!strings.Contains(err.Error(), "wants a login") {
				return unexpected{fmt.Sprint(topic, ": ", err)}
			}
		}
	}
	return nil
}

// meetRefusals ends a producer and a worker without the right, each with a code of the gateway.
func meetRefusals(gateway *api.ClientWithResponses, group, topic string, codes []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, sent := (&Producer{Client: gateway}).Send(ctx, topic, []api.ProduceRecord{{Value: "one"}}, "")
	worker := Worker{Client: gateway, Group: group, Topics: []string{topic}}
	for index, err := range []error{sent, worker.Run(ctx)} {
		if refused := (Refused{}); !errors.As(err, &refused) || refused.Problem.Code != codes[index] {
			return unexpected{fmt.Sprint("not ", codes[index], ": ", err)}
		}
	}
	return nil
}

// panics ends a worker by a panic of its handler: what lies behind the record in hand is no attempt.
func panics(topic string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	group := topic + "-panics"
	func() {
		defer func() { _ = recover() }()
		worker := Worker{Client: plain, Group: group, Topics: []string{topic}}
		worker.Handle = func(context.Context, api.ConsumerRecord, api.FetchedBatch) error { panic("oops") }
		err = worker.Run(ctx)
	}()
	member, none := "m3", int32(0)
	fetched, fault := plain.FetchRecordsWithResponse(ctx, group, api.FetchRequest{Topics: &[]string{topic}, MemberId: &member, MaxWaitMs: &none})
	if fault != nil || fetched.JSON200 == nil {
		return errors.Join(err, fault)
	}
	var attempts []int32
	for _, batch := range fetched.JSON200.Batches {
		attempts = append(attempts, int32(batch.Attempt))
	}
	if !slices.Equal(attempts, []int32{2, 1}) {
		return unexpected{fmt.Sprint("after a panic: attempts ", attempts)}
	}
	return err
}

// check fails if a value that is expected is another one. What is not expected may be anything.
func check(expected, found any, place string) error {
	fits := reflect.DeepEqual(expected, found)
	switch wanted := expected.(type) {
	case string:
		fits = fits || (wanted == "$absent" && found == nil) || (wanted == "$any" && found != nil)
	case []any:
		list, ok := found.([]any)
		if fits = ok && len(list) == len(wanted); fits {
			for index, value := range wanted {
				if err := check(value, list[index], fmt.Sprint(place, "/", index)); err != nil {
					return err
				}
			}
		}
	case object:
		members, ok := found.(object)
		if fits = ok; fits {
			for name, value := range wanted {
				if err := check(value, members[name], place+"/"+name); err != nil {
					return err
				}
			}
		}
	}
	if fits {
		return nil
	}
	is, _ := json.Marshal(found)
	not, _ := json.Marshal(expected)
	return unexpected{fmt.Sprintf("%s is %.300s, not %.300s", place, is, not)}
}

func main() {
	if len(os.Args) == 1 {
		if err := snippets(plain); err != nil {
			panic(err)
		}
		return
	}
	raw, err := os.ReadFile(os.Args[1])
	var cases []testCase
	if err = errors.Join(err, json.Unmarshal(raw, &cases)); err != nil {
		panic(err)
	}
	failed := 0
	for _, each := range cases {
		if err := play(each); err != nil {
			failed++
			fmt.Printf("FAILED %s: %v\n", each.ID, err)
		} else {
			fmt.Println("ok", each.ID)
		}
	}
	fmt.Printf("%d passed, %d failed\n", len(cases)-failed, failed)
	if failed > 0 {
		os.Exit(1)
	}
}

func play(each testCase) error {
	name := "go-" + each.ID
	p := player{object{"topic": name, "group": name, "large": strings.Repeat("x", 1_100_000)}}
	for _, s := range each.Steps {
		if err := p.play(s); err != nil {
			return err
		}
	}
	if each.Worker != nil {
		if err := p.work(*each.Worker); err != nil {
			return err
		}
	}
	for _, s := range each.Then {
		if err := p.play(s); err != nil {
			return err
		}
	}
	return nil
}
