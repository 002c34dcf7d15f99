#!/usr/bin/env bash
# Brings the plane up with infra/compose.tracing.yml, asks a question, and looks its trace up in Jaeger.
#
#   infra/verify-tracing.sh
#
# As infra/verify-compose.sh; takes some two minutes.
# shellcheck source=infra/verify-common.sh
source "$(dirname "$0")/verify-common.sh"

export COMPOSE_PROJECT_NAME=headway-verify-tracing COMPOSE_FILE=docker-compose.yml:infra/compose.tracing.yml
jaeger=http://localhost:16686

main() {
    timed "up" compose up -d --build --wait
    echo 'verify-trace:{"pipeline": "ask", "input": {"question": "When are default parameter values evaluated?"}}' |
        kcat -b $broker -P -t inference-requests -K:
    until_answered verify-trace 1 60
    the_run_is_one_trace "$(sed 's/.*"run_id":"\([^"]*\)".*/\1/; s/-//g' "$work/responses")"
}

# Of all who had a part in it, each with what it did.
the_run_is_one_trace() {
    local span spans=("run ask" admission "step guard" "step phrase" "queue llm" "service llm" response)
    for span in "${spans[@]}"; do within 30 told "$1" "$span" || broken "trace $1 has no \"$span\": $(cat "$work/trace")"; done
    ok "a run is one trace in Jaeger: $(grep -o '"operationName":"' "$work/trace" | wc -l) spans of" \
        "$(grep -o '"serviceName":"[^"]*"' "$work/trace" | cut -d '"' -f 4 | sort -u | paste -sd ' ')"
}

# told TRACE SPAN
told() {
    curl -s "$jaeger/api/traces/$1" >"$work/trace"
    grep -q "\"operationName\":\"$2\"" "$work/trace"
}

main
