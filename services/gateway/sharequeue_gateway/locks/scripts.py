"""The Lua scripts for locks, each one atomic step in Redis. They are called by their hash."""

import hashlib
from functools import cache
from typing import Final

# KEYS: lock hash. ARGV: leader epoch, hash ttl, whether to delete all fields first (1 or 0), field/value pairs.
WRITE: Final = """
if tonumber(redis.call('HGET', KEYS[1], 'epoch') or '0') > tonumber(ARGV[1]) then return 0 end
if ARGV[3] == '1' then redis.call('UNLINK', KEYS[1]) end
redis.call('HSET', KEYS[1], 'epoch', ARGV[1])
for i = 4, #ARGV, 1000 do redis.call('HSET', KEYS[1], unpack(ARGV, i, math.min(i + 999, #ARGV))) end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
"""
# KEYS: lock hash, spare hash, which takes its place. ARGV: leader epoch, how many fields the spare hash must have: if a
# closed connection had the last calls sent again, it has others.
REPLACE: Final = """
if tonumber(redis.call('HGET', KEYS[1], 'epoch') or '0') > tonumber(ARGV[1]) then return 0 end
if redis.call('HLEN', KEYS[2]) ~= tonumber(ARGV[2]) then return redis.error_reply('ERR the spare hash lacks locks') end
redis.call('UNLINK', KEYS[1])
redis.call('RENAME', KEYS[2], KEYS[1])
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
ALL: Final = (WRITE, REPLACE, LOAD)


@cache
def sha1(script: str) -> str:
    return hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()
