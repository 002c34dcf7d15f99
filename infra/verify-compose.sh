#!/usr/bin/env bash
# Brings the whole plane up under a project name of its own, holds it to its promises, and takes it down again.
#
#   infra/verify-compose.sh
#
# A line a promise; exits 1 at the first that is broken, with the end of the logs. Takes some six minutes. Needs docker
# with compose, kcat, the .venv of `make install`, and the ports of docker-compose.yml.
# shellcheck source=infra/verify-common.sh
source "$(dirname "$0")/verify-common.sh"

export COMPOSE_PROJECT_NAME=headway-verify
requests=300
flood=4000

main() {
    docker volume ls -q >"$work/volumes"
    timed "up, with the image built" compose up -d --build --wait
    everything_is_healthy
    idle_memory_is_modest
    containers_are_sealed
    a_question_is_answered
    down_keeps_what_is_known
    the_doctor_finds_nothing
    three_hosts_share_the_lanes
    a_restart_of_kafka_loses_nothing
    everything_asked_of_prometheus_has_an_answer
    health_is_progress
    timed "down -v" compose down -v
    nothing_is_left
}

everything_is_healthy() {
    local state
    state=$(docker compose ps -a --format '{{.Service}} {{.Health}} {{.ExitCode}}' | grep -v -e ' healthy ' -e '^setup  0$') ||
        { ok "every service is healthy, and the topics are made"; return; }
    broken "not healthy: $state"
}

idle_memory_is_modest() {
    local mib
    mib=$(docker stats --no-stream --format '{{.MemUsage}}' $(docker compose ps -q) | awk '
        { size = $1 + 0; sum += $1 ~ /GiB/ ? size * 1024 : $1 ~ /KiB/ ? size / 1024 : size } END { printf "%d", sum }')
    [ "$mib" -le 2560 ] || broken "idle, the plane takes $mib MiB: more than 2.5 GiB"
    ok "idle, the plane takes $mib MiB"
}

containers_are_sealed() {
    local container
    for container in $(docker compose ps -q); do
        [ "$(docker inspect -f '{{.HostConfig.ReadonlyRootfs}}' "$container")" = true ] || broken "$container: writable"
        [ "$(docker exec "$container" sed -n 's/^Uid:\t\([0-9]*\).*/\1/p' /proc/1/status)" != 0 ] || broken "$container: root"
        ! docker inspect -f '{{json .Config.Env}}' "$container" | grep -qiE '(password|secret|token)[A-Z_]*=[^/"]' ||
            broken "$container: a secret among its variables"
    done
    local writable
    writable=$(docker run --rm --network none --entrypoint find headway:local / -xdev -writable ! -type l 2>/dev/null |
        grep -vE '^/(dev|tmp|var/tmp|run/lock|var/lib/headway)(/|$)') || true
    [ -z "$writable" ] || broken "the image's user can write $writable"
    ! docker compose exec -T worker-fast sh -c 'command -v pip gcc make git' || broken "build tools are in the image"
    .venv/bin/python -m infra.images.scan headway:local >"$work/out" || broken "in the image: $(cat "$work/out")"
    ok "no container runs as root, can write to its root, holds a secret among its variables or in its layers"
}

# By a program that knows nothing of Headway.
a_question_is_answered() {
    echo "verify-question:$(question ask)" | kcat -b $broker -P -t inference-requests -K:
    until_answered verify-question 1 60
    grep -q '"status":"succeeded"' "$work/responses" || broken "the answer is $(cat "$work/responses")"
    ok "a question through kcat is answered"
}

# The smallest request for a pipeline.
question() {
    case $1 in
        ask) echo '{"pipeline": "ask", "input": {"question": "When are default parameter values evaluated?"}}' ;;
        sales) echo '{"pipeline": "sales", "input": {"question": "Which weekday is the busiest?"}}' ;;
        sql) echo '{"pipeline": "sql", "input": {"query": "SELECT type, sum(price) FROM sales GROUP BY type"}}' ;;
        embed) echo '{"pipeline": "embed", "input": {"texts": ["one text", "and another"]}}' ;;
    esac
}

down_keeps_what_is_known() {
    compose down
    timed "up again" compose up -d --wait
    until_answered verify-question 1 10
    docker compose exec -T orchestrator headway run show verify-question >"$work/out" 2>&1 ||
        broken "a run of before is not known: $(cat "$work/out")"
    ok "what was answered before is still known"
}

the_doctor_finds_nothing() {
    docker compose exec -T orchestrator headway doctor >"$work/out" 2>&1 || broken "headway doctor: $(cat "$work/out")"
    ok "headway doctor, inside a container, finds nothing wrong"
}

# More machines give room; workers come with the load.
three_hosts_share_the_lanes() {
    local number
    compose up -d --wait --scale worker-fast=3
    for ((number = 1; number <= flood; number++)); do
        echo "verify-flood-$number:$(question embed)"
    done | kcat -b $broker -P -t inference-requests -K: || broken "kcat could not publish"
    within 90 shared_by_three || broken "the lanes of embedding are shared so, by host: $(shares)"
    ok "three hosts share the lanes of embedding: $(shares)"
    until_answered verify-flood $flood 180
}

# Partitions of embedding by host.
shares() {
    docker compose exec -T kafka /opt/kafka/bin/kafka-consumer-groups.sh --bootstrap-server localhost:29092 \
        --describe --members --group headway-worker-embedding 2>/dev/null |
        awk '$1 == "headway-worker-embedding" { shares[$3] += $NF } END { for (host in shares) print shares[host] }' |
        sort -n | tr '\n' ' '
}

shared_by_three() {
    local found
    found=$(shares)
    [ "$(wc -w <<<"$found")" = 3 ] && [ "${found%% *}" -gt 0 ]
}

a_restart_of_kafka_loses_nothing() {
    local number
    for ((number = 1; number <= requests; number++)); do
        echo "verify-load-$number:$(question embed)"
        sleep 0.1
    done | kcat -b $broker -P -t inference-requests -K: -E -X enable.idempotence=true 2>"$work/load" &
    local load=$!
    until_answered verify-load 30 60
    timed "kafka is restarted under load" compose restart kafka
    wait $load || broken "kcat could not publish all: $(cat "$work/load")"
    until_answered verify-load $requests 120
    [ "$(wc -l <"$work/responses")" = $requests ] || broken "some requests are answered twice"
    local failed
    failed=$(grep -cv '"status":"succeeded"' "$work/responses") || true
    [ "$failed" = 0 ] || broken "$failed of $requests runs did not succeed"
    ok "all of $requests requests are answered once, and every run succeeded"
}

# After a minute of all pipelines, of which Prometheus makes rates, and a record that nobody can read.
everything_asked_of_prometheus_has_an_answer() {
    local pipelines=(ask sql sales embed sales sql embed sales embed sql) number
    echo "verify-broken:no JSON" | kcat -b $broker -P -t inference-requests -K:
    for ((number = 0; number < 120; number++)); do
        echo "verify-mix-$number:$(question "${pipelines[number % 10]}")"
        sleep 0.5
    done | kcat -b $broker -P -t inference-requests -K: || broken "kcat could not publish"
    until_answered verify-mix 120 60
    .venv/bin/python -m infra.grafana.walk http://localhost:9090 >"$work/out" || broken "$(cat "$work/out")"
    ok "$(cat "$work/out")"
}

# A port that answers is not enough: nobody gets on while Kafka stands still.
health_is_progress() {
    local service services=(orchestrator aggregator autoscaler worker-llm)
    compose pause kafka
    for service in "${services[@]}"; do within 120 stuck "$service" || broken "$service seems well, and Kafka is frozen"; done
    compose unpause kafka
    for service in "${services[@]}"; do within 120 healthy "$service" || broken "$service does not get well"; done
    ok "no service is healthy while Kafka stands still, and all are soon after"
}

healthy() { [ "$(docker compose ps --format '{{.Health}}' "$1")" = healthy ]; }

stuck() { ! healthy "$1"; }

# Volumes without a name have no label.
nothing_is_left() {
    local label="label=com.docker.compose.project=$COMPOSE_PROJECT_NAME" left
    left=$(docker ps -aq --filter "$label"; docker network ls -q --filter "$label"
        docker volume ls -q | grep -vxFf "$work/volumes") || true
    [ -z "$left" ] || broken "left behind: $left"
    ok "down -v leaves nothing"
}

main
