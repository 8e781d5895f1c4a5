#!/bin/sh
# Listens to Foliot with the command nats (github.com/nats-io/natscli). NATS_URL says where the bus is.
# DECODE turns a message into text: `foliot decode`, or, where Foliot is not installed, decode.py beside this file.
set -eu
DECODE=${DECODE:-python3 $(dirname "$0")/decode.py}

case ${1:-events} in
  events) # events as they come
    nats sub 'foliot.v1.event.>' --translate "$DECODE" ${COUNT:+--count "$COUNT"} ;;
  missed) # one event that came since this consumer was made, and not again the next time
    nats consumer info EVENTS example-cli >/dev/null 2>&1 ||
      nats consumer add EVENTS example-cli --pull --deliver new --ack explicit --filter 'foliot.v1.event.>' --defaults >/dev/null
    nats consumer next EVENTS example-cli --raw | $DECODE ;;
  node) # the present state of a node, by its escaped name
    nats kv get inventory "$2" --raw | $DECODE ;;
  *) echo "usage: $0 events | missed | node NAME" >&2; exit 2 ;;
esac
