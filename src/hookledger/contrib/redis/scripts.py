"""The transitions of a key, each one Lua script, so that no other command comes between comparing and writing.

A key has two names. `lease` is the token and the fingerprint of the caller that runs the work; it expires. `record`
is a state, a token, a fingerprint and a payload. Its states are `A`, `B` and `X`, an answer (see answers.py), and
`S`: work that must not be repeated has started. A started record without a lease is an unknown outcome.

Each script may run twice with the same token, because a client sends a command again when its answer was lost.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

TOKEN_BYTES = 16
PRINT_BYTES = 32
STARTED = b"S"


class Script(NamedTuple):
    text: str
    sha: str


def _script(text: str) -> Script:
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


_BEGIN = """
local token = ARGV[1]
local lease = redis.call('GET', KEYS[1])
local record = redis.call('GET', KEYS[2])
local mine = lease and string.sub(lease, 1, 16) == token
local marked = record and string.sub(record, 1, 17) == 'S' .. token
"""

CLAIM = _script(
    _BEGIN
    + """
if mine then return {'claimed'} end
if lease and (not record or string.sub(record, 1, 1) == 'S') then return {'held', lease} end
if record then return {'known', record} end
redis.call('SET', KEYS[1], token .. ARGV[2], 'NX', 'PX', ARGV[3])
if ARGV[4] ~= '' then redis.call('SET', KEYS[2], ARGV[4]) end
return {'claimed'}
"""
)
"""ARGV: token, fingerprint, lease in ms, the record of started work or nothing."""

RENEW = _script(
    _BEGIN
    + """
if mine then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
  return 1
end
if lease or (record and not marked) then return 0 end
redis.call('SET', KEYS[1], token .. ARGV[2], 'NX', 'PX', ARGV[3])
if ARGV[4] ~= '' then redis.call('SET', KEYS[2], ARGV[4]) end
return 1
"""
)
"""ARGV as for CLAIM. Claims an expired or lost lease again unless another caller has, or has answered, the key."""

FINISH = _script(
    _BEGIN
    + """
if record and not marked then
  if string.sub(record, 2, 17) == token then return 1 end
  return 0
end
if lease and not mine then return 0 end
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
redis.call('DEL', KEYS[1])
return 1
"""
)
"""ARGV: token, record, window in ms. A late answer is stored only if no other caller has the key or has answered."""

RELEASE = _script(
    _BEGIN
    + """
if mine then redis.call('DEL', KEYS[1]) end
if marked and ARGV[2] == '1' then redis.call('DEL', KEYS[2]) end
return 1
"""
)
"""ARGV: token, whether the work certainly did nothing."""

DECIDE = _script(
    _BEGIN
    + """
if lease or not marked then return 0 end
if ARGV[2] == '' then
  redis.call('DEL', KEYS[2])
else
  redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
end
return 1
"""
)
"""ARGV: token of the started record, the record to replace it or nothing, window in ms."""
