#!/bin/sh
# Runs in a one-off container on the volume of the stopped Redis, and replaces its data by the RDB file on stdin.
# With append-only persistence, Redis ignores dump.rdb. A temporary Redis converts the dump into an append-only file.
# The file is in a separate folder, and replaces the data only after Redis has loaded it once as a test.
set -eu
umask 077
cd "${DATA:-/data}"
socket=${SOCKET:-/tmp/load-redis.sock}
# On Kubernetes, this script can run in an image of an earlier version of this project, which contains Redis.
server=${SERVER:-$(command -v valkey-server >/dev/null && echo valkey || echo redis)}
new=.restore old=.before-restore
pid='' phase=moving-out

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

clear_up() {
  code=$?
  trap - EXIT
  [ -z "$pid" ] || kill -9 "$pid" 2>/dev/null || true
  rm -rf "$new" "$socket"
  [ ! -d "$old" ] || put_back
  exit "$code"
}

put_back() { # restore the previous state after an interrupted swap
  if [ "$phase" = moving-in ]; then
    find . -mindepth 1 -maxdepth 1 ! -name "$old" ! -name "$old.*" -exec rm -rf {} +
  fi
  find "$old" -mindepth 1 -maxdepth 1 -exec mv {} . \;
  rmdir "$old"
}

ask() { "$server-cli" -s "$socket" "$@"; }

field() { ask INFO persistence | tr -d '\r' | sed -n "s/^$1://p"; }

start() { # start yes|no: start Redis with or without the append-only file
  "$server-server" --dir "$PWD/$new" --dbfilename dump.rdb --appendonly "$1" --save '' --port 0 --unixsocket "$socket" \
    --loglevel warning >&2 &
  pid=$!
  until [ "$(ask PING 2>/dev/null)" = PONG ]; do
    kill -0 "$pid" 2>/dev/null || fail "Redis cannot load the data; see the lines above"
    sleep 0.2
  done
}

finish() {
  ask SHUTDOWN
  wait "$pid" || fail "Redis exited with an error"
  pid=''
}

writer() { # print the name and version of the server that wrote the dump, such as redis 8.2.3
  head -c 64 "$new/dump.rdb" | LC_ALL=C tr -cs '[:alnum:].-' ' ' | sed -nE 's/^[A-Z0-9]+ (redis|valkey)-ver ([0-9.]+) .*/\1 \2/p'
}

is_readable() { "$server-check-rdb" "$new/dump.rdb" >"$new/check" && rm "$new/check"; }

lower_format() { # declare a dump of Redis 7.4 to 8.2 as format 11, the newest that Valkey 8 reads, without a checksum
  printf REDIS0011 | dd of="$new/dump.rdb" conv=notrunc 2>/dev/null
  head -c 8 /dev/zero | dd of="$new/dump.rdb" bs=1 seek=$(($(wc -c <"$new/dump.rdb") - 8)) conv=notrunc 2>/dev/null
}

check() { # check that the dump is complete and that this server can read it
  is_readable && return
  # Formats 11 and 12 differ only in hash fields that expire. Jobs have none, and the check would find them.
  if grep -q "Can't handle RDB format version 12" "$new/check"; then
    lower_format
    is_readable && return
  fi
  wrote=$(writer)
  [ -z "$wrote" ] || ! grep -qE "Can't handle RDB format|Wrong signature" "$new/check" ||
    fail "$wrote wrote this dump, but this server, $("$server-server" --version | cut -d ' ' -f 1-3), cannot read it." \
      "Use an image of $wrote or later, in docker-compose.yml or k8s/base/redis.yaml"
  cat "$new/check" >&2
  fail "this is not a complete RDB file"
}

make_log() {
  [ "$(ask CONFIG SET appendonly yes)" = OK ] || fail "Redis cannot enable append-only persistence"
  until [ "$(field aof_rewrite_in_progress)$(field aof_rewrite_scheduled)" = 00 ]; do sleep 0.2; done
  [ "$(field aof_last_bgrewrite_status)" = ok ] || fail "Redis could not write its append-only file; check whether the disk is full"
}

swap() {
  mkdir "$old"
  find . -mindepth 1 -maxdepth 1 ! -name "$new" ! -name "$old" ! -name "$old.*" -exec mv {} "$old" \;
  phase=moving-in
  find "$new" -mindepth 1 -maxdepth 1 -exec mv {} . \;
  rm -rf "$new" "$old.done"
  # This rename is the point at which the new data becomes valid.
  mv "$old" "$old.done"
  rm -rf "$old.done"
}

# A restore was killed between its renames. Redis may have been running since then, so no data is deleted.
if [ -d "$old" ]; then
  mv "$old" "$old.$(date +%s)"
  printf 'note: an earlier restore was killed; the previous data is in %s/%s.*\n' "$PWD" "$old" >&2
fi
trap clear_up EXIT
trap 'exit 130' HUP INT TERM
rm -rf "$new"
mkdir "$new"
cat >"$new/dump.rdb"
check
start no
make_log
# A backup contains no artifact contents. Coordinators accept an existing artifact store or create one.
ask DEL ct:filestore >/dev/null
keys=$(ask DBSIZE)
finish
rm -f "$new/dump.rdb"
start yes
again=$(ask DBSIZE)
finish
# Some keys may have expired since the dump.
[ "$again" -gt 0 ] || [ "$keys" -eq 0 ] || fail "only $again of $keys keys were restored"
swap
printf 'keys %s\n' "$keys"
