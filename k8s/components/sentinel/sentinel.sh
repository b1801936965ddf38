#!/bin/sh
# Start one of three sentinels, in Compose and on Kubernetes: sentinel.sh NAME FIRST OPTION...
# NAME is this sentinel's host name, FIRST the initial master. Later changes are stored in the sentinel's volume.
set -eu
umask 077
name=$1 first=$2
shift 2
conf=${DATA:-/data}/sentinel.conf
password=$(cat "${SECRETS:-/run/secrets}/redis_sentinel_password")
# Pattern of the lines that this script writes below. Sentinel manages all other lines.
ours='^(port|dir|aclfile|sentinel (resolve-hostnames|announce-hostnames|announce-ip|sentinel-user|sentinel-pass|auth-user'
ours="$ours|auth-pass|down-after-milliseconds|failover-timeout|parallel-syncs)) "
{
  printf 'port 26379\ndir %s\naclfile %s\n' "${DATA:-/data}" "${SECRETS:-/run/secrets}/sentinel.acl"
  printf 'sentinel resolve-hostnames yes\nsentinel announce-hostnames yes\nsentinel announce-ip %s\n' "$name"
  printf 'sentinel sentinel-user sentinel\nsentinel sentinel-pass %s\n' "$password"
  if [ -s "$conf" ]; then
    grep -vE "$ours" "$conf"
  else
    printf 'sentinel monitor threads %s 6379 2\n' "$first"
  fi
  printf 'sentinel auth-user threads sentinel\nsentinel auth-pass threads %s\n' "$password"
  # A silent master counts as down after two seconds. A failed failover is repeated after twice the failover timeout.
  printf 'sentinel down-after-milliseconds threads 2000\nsentinel failover-timeout threads 2000\n'
  printf 'sentinel parallel-syncs threads 2\n'
} >"$conf.new"
mv "$conf.new" "$conf"
exec valkey-server "$conf" --sentinel "$@"
