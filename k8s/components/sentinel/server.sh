#!/bin/sh
# Starts one of the servers that sentinels watch, in Compose and on Kubernetes, with the options of a Redis alone:
#   server.sh NAME FIRST OPTION...
# NAME is where the others find it, FIRST the master of the first start. Afterwards it is what the sentinels last made
# of it; one that wrongly takes itself for the master has no replica, writes nothing, and is corrected by them.
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
  # A name, since addresses change and sentinels would wait for those that are gone.
  printf 'replica-announce-ip %s\n' "$name"
  # A master that was cut off from both replicas stops within about four seconds.
  printf 'min-replicas-to-write 1\nmin-replicas-max-lag 3\n'
  printf '%s\n' "$role"
} >"$conf.new"
mv "$conf.new" "$conf"
exec redis-server "$conf" "$@"
