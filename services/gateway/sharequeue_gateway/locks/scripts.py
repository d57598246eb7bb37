"""The Lua scripts for locks, each one atomic step in Redis. They are called by their hash."""

import hashlib
from functools import cache
from typing import Final

# KEYS: lock hash, due set, due sets. ARGV: leader epoch, share-partition, next deadline, hash ttl, how many fields to
# delete ('': all), fields to delete, field/value pairs.
WRITE: Final = """
if tonumber(redis.call('HGET', KEYS[1], 'epoch') or '0') > tonumber(ARGV[1]) then return 0 end
if ARGV[5] == '' then redis.call('UNLINK', KEYS[1]) end
redis.call('HSET', KEYS[1], 'epoch', ARGV[1])
local last = 5 + (tonumber(ARGV[5]) or 0)
for i = 6, last, 1000 do redis.call('HDEL', KEYS[1], unpack(ARGV, i, math.min(i + 999, last))) end
for i = last + 1, #ARGV, 1000 do redis.call('HSET', KEYS[1], unpack(ARGV, i, math.min(i + 999, #ARGV))) end
redis.call('PEXPIRE', KEYS[1], ARGV[4])
if ARGV[3] == '' then
  redis.call('ZREM', KEYS[2], ARGV[2])
else
  redis.call('ZADD', KEYS[2], ARGV[3], ARGV[2])
  redis.call('SADD', KEYS[3], KEYS[2])
end
return 1
"""
# KEYS: lock hash. ARGV: leader epoch, hash ttl, lost epochs: above, up to. Answers the stored leader epoch if it is
# higher, else the fields and values of the hash. From then on no earlier leader changes it. Locks of a lost epoch are
# deleted: PostgreSQL went back, and what they lock may be gone.
LOAD: Final = """
local stored = tonumber(redis.call('HGET', KEYS[1], 'epoch') or '0')
if stored > tonumber(ARGV[1]) then return stored end
if stored > tonumber(ARGV[3]) and stored <= tonumber(ARGV[4]) then redis.call('UNLINK', KEYS[1]) end
redis.call('HSET', KEYS[1], 'epoch', ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('HGETALL', KEYS[1])
"""
# KEYS: due set to move to, due set to move from, due sets. ARGV: the time at which all are due, share-partitions.
MOVE_DUE: Final = """
for i = 2, #ARGV do
  if redis.call('ZREM', KEYS[2], ARGV[i]) == 1 then
    redis.call('ZADD', KEYS[1], ARGV[1], ARGV[i])
    redis.call('SADD', KEYS[3], KEYS[1])
  end
end
if redis.call('EXISTS', KEYS[2]) == 0 then redis.call('SREM', KEYS[3], KEYS[2]) end
return 1
"""

ALL: Final = (WRITE, LOAD, MOVE_DUE)


@cache
def sha1(script: str) -> str:
    return hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()
