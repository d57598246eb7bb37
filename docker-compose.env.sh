#!/bin/sh
# Writes the secrets of docker-compose.yml into .env, where nobody else can read them. What is there already stays.
set -eu
umask 077

random() { # as many random bytes as $1 says, in hexadecimal
    od -An -N"$1" -tx1 /dev/urandom | tr -d ' \n'
}

add() { # $1=$2, if .env has no $1
    grep -qs "^$1=" .env || echo "$1=$2" >> .env
}

for name in CLUSTER_TOKEN REDIS_PASSWORD POSTGRES_PASSWORD GATEWAY_PASSWORD COORDINATOR_PASSWORD SHARE_COORDINATOR_PASSWORD; do
    add "SHAREQUEUE_$name" "$(random 24)"
done

# The key of User:admin: sq_, an id, 256 random bits, and the CRC-32 of what stands before it, which gzip writes at its end.
key=sq_$(random 8)_$(random 32)
checksum=$(printf %s "$key" | gzip | tail -c 8 | od -An -N4 -tx4 | tr -d ' \n')
add SHAREQUEUE_ADMIN_KEY "${key}_$checksum"
