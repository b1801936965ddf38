#!/bin/sh
# Start a Redis server under Sentinel, in Compose and on Kubernetes, with the options of a single Redis:
#   server.sh NAME FIRST OPTION...
# NAME is this server's host name, FIRST the initial master. Later, the server starts in the role that Sentinel last
# assigned. A server that wrongly starts as master has no replica, accepts no writes, and is corrected by Sentinel.
set -eu
umask 077
name=$1 first=$2
shift 2
conf=${DATA:-/data}/redis.conf
password=$(cat "${SECRETS:-/run/secrets}/redis_replica_password")
if [ -e "$conf" ]; then
  role=$(grep '^replicaof ' "$conf" || true)
elif [ "$name" = "$first" ]; then
  role=''
else
  role="replicaof $first 6379"
fi
{
  printf 'masteruser replica\nmasterauth %s\n' "$password"
  # Use a host name, because sentinels would wait for outdated addresses.
  printf 'replica-announce-ip %s\n' "$name"
  # An isolated master without replicas stops accepting writes within about four seconds.
  printf 'min-replicas-to-write 1\nmin-replicas-max-lag 3\n'
  printf '%s\n' "$role"
} >"$conf.new"
mv "$conf.new" "$conf"
exec valkey-server "$conf" "$@"
