"""The Lua script for locks, one atomic step in Redis. It is called by its hash.

A leader's locks are a list whose name ends in its leader epoch. It is there from the load on, without locks, too. The
load of a later leader renames it. So a plain RPUSHX, which does nothing without a list of that name, adds locks for the
last leader alone.
"""

import hashlib
from typing import Final

# KEYS: leader epoch, the begin of the lists' names. ARGV: leader epoch, time to live, lost epochs: above, up to.
# Answers the stored leader epoch if it is higher, else the entries of the list. From then on no earlier leader changes
# it. Locks of a lost epoch are deleted: PostgreSQL went back, and what they lock may be gone.
LOAD: Final = """
local stored = redis.call('GET', KEYS[1]) or '0'
local epoch, former, list = tonumber(stored), KEYS[2] .. stored, KEYS[2] .. ARGV[1]
if epoch > tonumber(ARGV[1]) then return epoch end
if epoch > tonumber(ARGV[3]) and epoch <= tonumber(ARGV[4]) then redis.call('UNLINK', former) end
if stored ~= ARGV[1] and redis.call('EXISTS', former) == 1 then redis.call('RENAME', former, list) end
if redis.call('EXISTS', list) == 0 then redis.call('RPUSH', list, '[]') end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('PEXPIRE', list, ARGV[2])
return redis.call('LRANGE', list, 0, -1)
"""
LOAD_SHA1: Final = hashlib.sha1(LOAD.encode(), usedforsecurity=False).hexdigest()
