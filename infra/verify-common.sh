# What the verify-… scripts share: sourced, not run. Each has `main` and a project name of its own.
# shellcheck shell=bash
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

broker=localhost:9092
work=$(mktemp -d)
trap finish EXIT

# Quiet, unless it fails.
compose() { docker compose "$@" >"$work/compose" 2>&1 || { cat "$work/compose" >&2; return 1; }; }

ok() { echo "ok      $*"; }

broken() {
    echo "BROKEN  $*" >&2
    exit 1
}

# Times are told, not judged: a build waits for the network.
timed() {
    local what=$1 start=$SECONDS
    shift
    "$@"
    ok "$what: $((SECONDS - start)) s"
}

finish() {
    local status=$?
    [ $status = 0 ] || docker compose logs --no-color --tail 20 >&2 || true
    docker compose unpause >/dev/null 2>&1 || true # what is frozen does not stop
    docker compose down -v >/dev/null 2>&1
    rm -rf "$work"
    exit $status
}

# within SECONDS COMMAND...
within() {
    local deadline=$((SECONDS + $1))
    until "${@:2}"; do
        [ $SECONDS -lt $deadline ] || return 1
        sleep 1
    done
}

# until_answered PREFIX NUMBER SECONDS [TOPIC [KCAT OPTION...]]: so many requests whose ids begin so have a response;
# what came is in $work/responses.
until_answered() {
    local prefix=$1 wanted=$2 deadline=$((SECONDS + $3)) topic=${4-inference-responses} found
    while :; do
        kcat -b $broker "${@:5}" -C -t "$topic" -o beginning -e -q -f '%k %s\n' 2>/dev/null |
            grep "^$prefix" >"$work/responses" || true
        found=$(cut -d ' ' -f 1 "$work/responses" | sort -u | wc -l)
        [ "$found" -lt "$wanted" ] || return 0
        [ $SECONDS -lt $deadline ] || broken "$found of $wanted requests have a response after $3 s"
        sleep 1
    done
}
