#!/usr/bin/env bash
# Brings the plane up with infra/compose.secure.yml and two tenants, and tries what must not work.
#
#   infra/verify-secure.sh
#
# As infra/verify-compose.sh, and needs openssl as well. Where kcat is too old to log in, Debian's newer one is built into
# an image.
# shellcheck source=infra/verify-common.sh
source "$(dirname "$0")/verify-common.sh"

export COMPOSE_PROJECT_NAME=headway-verify-secure COMPOSE_FILE=docker-compose.yml:infra/compose.secure.yml
export HEADWAY_SECRETS=$work/secrets HEADWAY_CONFIG=$work/config

main() {
    choose_kcat
    infra/make-secrets.sh acme globex >/dev/null
    cp -r infra/config "$HEADWAY_CONFIG"
    printf '%s: {ingress_topics: [inference-requests-%s]}\n' acme acme globex globex >"$HEADWAY_CONFIG/tenants.yaml"
    timed "up" compose up -d --build --wait
    strangers_reach_nothing
    a_tenant_is_answered
    tenants_reach_only_what_is_theirs
    redis_asks_for_a_password
    passwords_are_told_nowhere
}

# Before librdkafka 2.6.1 it answers the challenge of Kafka 4 wrongly: https://github.com/edenhill/kcat/issues/462
choose_kcat() {
    local version
    version=$(kcat -V 2>&1 | sed -n 's/.*librdkafka \([0-9.]*\).*/\1/p')
    printf '%s\n' 2.6.1 "$version" | sort -VC || timed "kcat stands on librdkafka $version: a newer one" newer_kcat
}

# From now on `kcat` is that of an image.
newer_kcat() {
    docker build -q -t headway-verify-kcat - >/dev/null <<END
FROM debian:trixie-slim
RUN apt-get update && apt-get install --yes --no-install-recommends kcat && rm -rf /var/lib/apt/lists/*
END
    mkdir "$work/bin"
    cat >"$work/bin/kcat" <<END
#!/bin/sh
exec docker run --rm -i --init --network host -v $work:$work:ro headway-verify-kcat kcat "\$@"
END
    chmod +x "$work/bin/kcat"
    PATH=$work/bin:$PATH
}

# as USER KCAT OPTION...
as() { timeout 30 kcat -F "$(login "$1")" -b $broker -m 10 "${@:2}" 2>&1; }

# The file of a user's login, so that no process has a password among its arguments.
login() {
    printf '%s\n' security.protocol=SASL_SSL sasl.mechanisms=SCRAM-SHA-512 "ssl.ca.location=$HEADWAY_SECRETS/ca.pem" \
        "sasl.username=$1" "sasl.password=$(cat "$HEADWAY_SECRETS/users/$1")" >"$work/login-$1"
    echo "$work/login-$1"
}

strangers_reach_nothing() {
    ! kcat -b $broker -m 5 -L >"$work/out" 2>&1 || broken "Kafka answers without TLS"
    as acme -L >"$work/out" || broken "acme is not let in: $(cat "$work/out")"
    local stranger
    for stranger in sasl.password=wrong sasl.username=nobody; do
        ! as acme -X $stranger -L >"$work/out" || broken "acme is let in with $stranger"
        grep -qi 'authentication failed' "$work/out" || broken "with $stranger Kafka says $(cat "$work/out")"
    done
    ok "nobody reaches Kafka without a user's password"
}

a_tenant_is_answered() {
    echo 'verify-acme:{"pipeline": "ask", "input": {"question": "When are default parameter values evaluated?"}}' |
        as acme -P -t inference-requests-acme -K: >"$work/out"
    until_answered verify-acme 1 60 inference-responses-acme -F "$(login acme)"
    grep -q '"status":"succeeded"' "$work/responses" || broken "the answer is $(cat "$work/responses")"
    grep -q '"tenant":"acme"' "$work/responses" || broken "the tenant is not acme: $(cat "$work/responses")"
    ok "a tenant is answered on its own topics"
}

tenants_reach_only_what_is_theirs() {
    local user topic
    for user in globex client; do
        for topic in inference-requests-acme inference-responses-acme inference-events inference-config; do
            refused "$user" read "$topic" -C -t "$topic" -o beginning -e
            refused "$user" write "$topic" -P -t "$topic"
        done
    done
    refused acme write inference-requests -P -t inference-requests
    refused acme read inference-requests-acme -C -t inference-requests-acme -o beginning -e
    for user in acme globex; do
        as "$user" -L | sed -n 's/^ *topic "\([^"]*\)".*/\1/p' | sort | tr '\n' ' ' >"$work/out"
        [ "$(cat "$work/out")" = "inference-requests-$user inference-responses-$user " ] ||
            broken "$user sees $(cat "$work/out")"
    done
    ok "nobody reads or writes what belongs to a tenant, or to the plane"
}

# refused USER VERB TOPIC KCAT OPTION...
refused() {
    as "$1" "${@:4}" <<<'{}' >"$work/out" || true
    grep -qi 'authorization failed' "$work/out" || broken "$1 can $2 $3: $(cat "$work/out")"
}

redis_asks_for_a_password() {
    docker compose exec -T redis redis-cli --tls --cacert /run/secrets/ca.pem ping >"$work/out" 2>&1 || true
    grep -q NOAUTH "$work/out" || broken "Redis answers anybody: $(cat "$work/out")"
    ! docker compose exec -T redis redis-cli ping 2>/dev/null | grep -q PONG || broken "Redis answers without TLS"
    ok "Redis answers nobody without TLS and a password"
}

passwords_are_told_nowhere() {
    local file
    for file in "$HEADWAY_SECRETS"/{users/*,*-password}; do cat "$file" && echo; done >"$work/passwords"
    # shellcheck disable=SC2046  # ids
    told_by "what Docker knows of the containers" docker inspect $(docker compose ps -aq)
    told_by "what compose reads" docker compose config
    told_by "the arguments of a process" docker compose top
    told_by "a log" docker compose logs --no-color
    .venv/bin/python -m infra.images.scan headway:local "$work/passwords" >"$work/out" ||
        broken "in the image: $(cat "$work/out")"
    ok "no password is told by Docker, compose, a process, a log or the image"
}

# told_by WHAT COMMAND...
told_by() {
    "${@:2}" >"$work/out"
    ! grep -qFf "$work/passwords" "$work/out" || broken "a password is in $1"
}

main
