// net/http, with its default client, through produce, fetch and acknowledge. Arguments: the gateway's URL, a topic.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

func call(path, body string) string {
	answer, err := http.Post(os.Args[1]+"/v1/"+path, "application/json", strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != 200 {
		panic(fmt.Sprintf("%s: %d %s %v", path, answer.StatusCode, raw, err))
	}
	return string(raw)
}

func fetch(waitMs int) (fetched struct {
	Batches []struct {
		Partition, First_offset, Last_offset, Delivery_count int64
		Records                                              []struct{ Value string }
	}
}) {
	topic := os.Args[2]
	body := fmt.Sprintf(`{"topics":[%q],"member_id":"go","max_wait_ms":%d}`, topic, waitMs)
	if err := json.Unmarshal([]byte(call("share-groups/"+topic+"/fetch", body)), &fetched); err != nil {
		panic(err)
	}
	return fetched
}

func main() {
	topic := os.Args[2]
	call("topics/"+topic+"/records", `{"records":[{"value":"one"},{"value":"two"}]}`)
	batches := fetch(5000).Batches
	if said := fmt.Sprint(batches); said != "[{0 0 1 1 [{one} {two}]}]" {
		panic(said)
	}
	accept := `{"member_id":"go","acknowledgements":[{"topic":%q,"partition":%d,"first_offset":%d,"last_offset":%d,"delivery_count":%d,"type":"accept"}]}`
	held := batches[0]
	accepted := call("share-groups/"+topic+"/acknowledge",
		fmt.Sprintf(accept, topic, held.Partition, held.First_offset, held.Last_offset, held.Delivery_count))
	if !strings.Contains(accepted, `"failed_count":0`) {
		panic(accepted)
	}
	if again := fetch(0).Batches; len(again) != 0 {
		panic(fmt.Sprint(again))
	}
}
