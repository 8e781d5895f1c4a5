"""One message of Foliot's from standard input, as JSON; needs msgspec alone.

As in ``nats sub ... --translate 'python3 decode.py'``.
"""

import sys

import msgspec

data = sys.stdin.buffer.read()
try:
    message = msgspec.msgpack.decode(data)
except msgspec.DecodeError:
    message = msgspec.msgpack.decode(data.removesuffix(b"\n"))  # --raw ends messages with a line end
print(msgspec.json.encode(message).decode())
