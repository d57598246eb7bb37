# curl, which offers HTTP/2 with each request, through produce, fetch and acknowledge. Arguments: the gateway's URL, a topic.
set -eu
call() {
  curl --silent --show-error --fail-with-body --http2 --max-time 30 -H 'Content-Type: application/json' "$1" --data "$2"
}
expect() {
  case "$1" in *"$2"*) ;; *) echo "expected $2 in: $1" >&2; exit 1 ;; esac
}
group="$1/v1/share-groups/$2"
call "$1/v1/topics/$2/records" '{"records":[{"value":"one"},{"value":"two"}]}' > /dev/null
fetch='{"topics":["'$2'"],"member_id":"curl","max_wait_ms":5000}'
fetched=$(call "$group/fetch" "$fetch")
expect "$fetched" '"value":"one"'
expect "$fetched" '"value":"two"'
accepted=$(call "$group/acknowledge" '{"member_id":"curl","acknowledgements":[
  {"topic":"'"$2"'","partition":0,"first_offset":0,"last_offset":1,"delivery_count":1,"type":"accept"}]}')
expect "$accepted" '"failed_count":0'
expect "$(call "$group/fetch" '{"topics":["'"$2"'"],"member_id":"curl","max_wait_ms":0}')" '"batches":[]'
