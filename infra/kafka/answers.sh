#!/usr/bin/env bash
# Exits 0 if the broker on a port of this container serves requests: it answers ApiVersions, which a broker that is
# still starting does not. Costs 10 ms, where Kafka's own tools start a Java machine.
#
#   answers.sh PORT
set -eu
exec 3<>"/dev/tcp/127.0.0.1/$1"
# Length 10, API key 18, version 0, correlation id 1, no client id.
printf '\0\0\0\12\0\22\0\0\0\0\0\1\377\377' >&3
# Of the answer: 4 bytes of length, the correlation id, and an error code.
[ "$(timeout 3 head -c 10 <&3 | od -An -v -tx1 | tr -d ' \n' | cut -c 9-)" = 000000010000 ]
