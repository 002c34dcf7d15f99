#!/usr/bin/env bash
# Everything secret that infra/compose.secure.yml mounts, made once, in $HEADWAY_SECRETS, or else in infra/secrets/ (which
# git ignores).
#
#   infra/make-secrets.sh [TENANT...]
#
# A certificate authority with certificates of Kafka and Redis, and a password a user: `headway` is the plane's own,
# `client` that of everybody without a tenant. What is there already stays, so a further TENANT can be added later.
# Needs openssl. Containers run as users of their own, so the files are readable to all; the folder is yours alone.
set -euo pipefail

folder=${HEADWAY_SECRETS:-$(dirname "$0")/secrets}
days=825 # the longest that all TLS clients accept
key=(-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes)

main() {
    umask 022
    mkdir -p -m 700 "$folder"
    mkdir -p "$folder/users"
    cd "$folder"
    [ -e ca.pem ] || openssl req -x509 "${key[@]}" -days $days -subj "/CN=Headway" \
        -addext keyUsage=critical,keyCertSign,cRLSign -keyout ca.key -out ca.pem 2>/dev/null
    chmod 600 ca.key
    certificate kafka
    certificate redis
    local user
    for user in headway client "$@"; do password "users/$user"; done
    password redis-password
    password grafana-password
    printf 'rediss://:%s@redis:6379?ssl_ca_certs=/run/secrets/ca.pem' "$(cat redis-password)" >redis-url
    redis_settings >redis.conf
    ls -1 . users
}

# certificate HOST: key and certificate in one file, for the container's name and for this machine.
certificate() {
    [ ! -e "$1.pem" ] || return 0
    openssl req "${key[@]}" -subj "/CN=$1" -keyout "$1.key" -out "$1.csr" 2>/dev/null
    openssl x509 -req -in "$1.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days $days -out "$1.crt" 2>/dev/null \
        -extfile <(extensions "$1")
    cat "$1.key" "$1.crt" >"$1.pem"
    rm "$1.key" "$1.csr" "$1.crt"
}

# All that a strict client asks for, as Python is from 3.13 on.
extensions() {
    cat <<END
subjectAltName=DNS:$1,DNS:localhost,IP:127.0.0.1
basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature
extendedKeyUsage=serverAuth
subjectKeyIdentifier=hash
authorityKeyIdentifier=keyid
END
}

password() {
    [ -e "$1" ] || openssl rand -hex 24 | tr -d '\n' >"$1"
}

redis_settings() {
    cat <<END
port 0
tls-port 6379
tls-cert-file /run/secrets/redis.pem
tls-key-file /run/secrets/redis.pem
tls-ca-cert-file /run/secrets/ca.pem
tls-auth-clients no
requirepass $(cat redis-password)
save ""
appendonly no
maxmemory 192mb
END
}

main "$@"
