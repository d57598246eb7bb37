"""JSON values that do not fit, or only just, and the schemas they are read with."""

FLAT = "id INT, amount DOUBLE, s STRING, b BOOLEAN, _corrupt_record STRING"
NUMBERS = "d DECIMAL(5,2), l BIGINT, t TINYINT, sh SMALLINT, fl FLOAT, bi BINARY, _corrupt_record STRING"
TIMES = "ts TIMESTAMP, dt DATE, n TIMESTAMP_NTZ, x INT, _corrupt_record STRING"
NESTED = "a ARRAY<INT>, m MAP<STRING,INT>, st STRUCT<x: INT, y: STRING>, at ARRAY<STRUCT<x: INT, y: STRING>>, z INT"
SCHEMAS = (FLAT, NUMBERS, TIMES, NESTED, "array<int>", "map<string,int>", "array<struct<id:int,s:string>>")

LINES = r"""
{"id":1,"amount":"12.5"}
{"id":1,"amount":12.5,"s":"a","b":true}
{"id":"1","amount":1}
{"id":1.0}
{"id":2147483648,"s":"x"}
{"id":-2147483649,"amount":1e400}
{"id":null,"b":"true"}
{}
[]
[{"id":3,"s":1}]
[{"id":"x","s":"y"},{"id":2}]
[1,2]
[1,"x"]
1
"x"
true
null
not json
{"id":1
{"id":1} trailing
{"id":1}{"id":2}
{"id":1,"id":2}
{"id":01}
{"ID":5}
{"id":[1],"b":1}
{"id":{"a":1}}
{"amount":"NaN"}
{"amount":NaN,"s":-Infinity}
{"amount":"-INF"}
{"amount":"abc","id":7}
{"id":1,}
{"id":+1}
{"amount":1e2,"id":1e2}
{"id":"","amount":""}
{"amount":123456789012345678901234567890}
{"id":-0}
{"amount":.5}
{"id":1,"x":"\q"}
{"s":1}
{"s":1.50}
{"s":{"a": 1, "b": [1.0, "x"]}}
{"s":[1, 2]}
{"s":1e5}
{"s":1e-7}
{"s":12345678.9}
{"s":"\u00e9\ud83d"}
{"s":12345678901234567890123}
{"d":1.5,"l":1}
{"d":"1.5","l":"1"}
{"d":123456.5}
{"d":1.555}
{"d":1.545}
{"d":-1.555}
{"d":999.995}
{"d":"abc","l":1}
{"d":true}
{"l":9223372036854775807}
{"l":9223372036854775808,"d":2}
{"t":127,"sh":32767}
{"t":-129,"sh":-32769}
{"fl":1e39}
{"fl":0.1}
{"bi":"aGk="}
{"bi":"aGk"}
{"bi":5,"l":3}
{"ts":"2026-11-21T08:00:00Z"}
{"ts":"2026-11-21 08:00:00","n":"2026-11-21 08:00:00.5"}
{"ts":"2026-11-21","dt":"2026-11-21"}
{"ts":"2026-11-21T08:00:00.123456+02:00"}
{"ts":1700000000}
{"ts":"1700000000"}
{"ts":1700000000.5}
{"ts":"abc","x":1}
{"ts":"2026-02-30T00:00:00Z","x":1}
{"ts":"2026-11-21T08:00"}
{"ts":"2026","dt":"2026"}
{"ts":"2026-11","dt":"2026-1"}
{"dt":"2026-11-21T08:00:00Z"}
{"dt":20000}
{"dt":"2026-02-30","x":1}
{"n":"2026-11-21T08:00:00Z"}
{"ts":"2026-11-21T24:00:00Z"}
{"ts":" 2026-11-21T08:00:00 Europe/Berlin"}
{"ts":"2026-1-2 3:4:5"}
{"ts":"20261121T080000Z"}
{"a":[1,"x",3],"z":1}
{"a":1,"z":1}
{"a":[null]}
{"m":{"k":"x","j":2},"z":1}
{"m":[1],"z":1}
{"m":{"k":null}}
{"st":{"x":"q","y":"b"},"z":1}
{"st":{"x":1,"y":2}}
{"st":[1],"z":1}
{"at":[{"x":"q","y":"b"},{"x":2}],"z":1}
{"at":[1],"z":1}
{"at":{"x":1},"z":1}
"""
VALUES = [*LINES.strip().splitlines(), "", "   ", "\ufeff{}", '{"s":"a\nb"}', "\x00"]
