#!/usr/bin/env bash
# Users and what each may do, on a broker with the authorizer (infra/compose.secure.yml). Repeating it does no harm.
#
#   access.sh FOLDER     with a file a user: its name is the user's, its content the password
#
#   user        topics                                       may            groups
#   headway     inference-…                                  everything     headway-…
#   client      inference-requests                           write
#               inference-responses                          read           client
#   any other   inference-requests-USER                      write
#   (a tenant)  inference-responses-USER                     read           USER
#
# A tenant's topics are made when `config apply` meets it in tenants.yaml.
set -euo pipefail

# Bound to the broker's own loopback: who is inside its network namespace is its administrator.
broker=localhost:29094

main() {
    local file user
    for file in "$1"/*; do
        user=$(basename "$file")
        set_password "$user" "$(cat "$file")"
        case $user in
            headway) grant_plane ;;
            client) grant_tenant client inference-requests inference-responses ;;
            *) grant_tenant "$user" "inference-requests-$user" "inference-responses-$user" ;;
        esac
        echo "user $user: password and rights are set"
    done
}

# By a file, so that no process has a password among its arguments.
set_password() {
    (umask 077 && printf 'SCRAM-SHA-512=password=%s\n' "$2" >/tmp/credential)
    /opt/kafka/bin/kafka-configs.sh --bootstrap-server $broker --alter --add-config-file /tmp/credential \
        --entity-type users --entity-name "$1" >/dev/null
    rm /tmp/credential
}

grant_plane() {
    allow headway --operation All --topic inference- --group headway- --resource-pattern-type prefixed
    allow headway --operation Describe --operation DescribeConfigs --cluster
}

grant_tenant() {
    allow "$1" --operation Write --operation Describe --topic "$2"
    allow "$1" --operation Read --operation Describe --topic "$3" --group "$1"
}

allow() {
    local user=$1
    shift
    /opt/kafka/bin/kafka-acls.sh --bootstrap-server $broker --add --allow-principal "User:$user" "$@" >/dev/null
}

main "$@"
