#!/bin/sh
# Piped into `sh -s` in the Redis container. Writes all persistent data as a verified RDB file to stdout.
# Lines `fact NAME VALUE` on stderr become part of the backup's manifest.
set -eu
umask 077
REDISCLI_AUTH=$(cat "${PASSWORD_FILE:-/run/secrets/redis_password}")
export REDISCLI_AUTH
# Containers of earlier versions of this project run Redis.
server=${SERVER:-$(command -v valkey-server >/dev/null && echo valkey || echo redis)}
ask() { "$server-cli" --user operator "$@"; }
# A replica without a connection to its master would provide an outdated copy.
if ask INFO replication | grep -q '^master_link_status:down'; then
  printf 'this Redis is a replica without a connection to its master; try again when it is connected\n' >&2
  exit 1
fi
cd "${DATA:-/data}"
# Delete files of killed backups.
find . -maxdepth 1 -name '.backup-*.rdb' -mmin +60 -exec rm -f {} +
# Write to a file. Into a pipe, the client would also write the marker that ends the transfer.
file=.backup-$$.rdb
trap 'rm -f "$file"' EXIT
trap 'exit 130' HUP INT TERM
ask --rdb "$file" >&2
checked=$("$server-check-rdb" "$file") || {
  printf '%s\n' "$checked" >&2
  exit 1
}
{
  printf 'fact redis_version %s\n' "$(ask INFO server | sed -n "s/^${server}_version:\([0-9.]*\).*/\1/p")"
  printf 'fact keys %s\n' "$(printf '%s\n' "$checked" | sed -n 's/^\[info\] \([0-9]*\) keys read$/\1/p')"
  printf 'fact bytes %s\n' "$(wc -c <"$file" | tr -d ' ')"
  printf 'fact sha256 %s\n' "$(sha256sum "$file" | cut -d ' ' -f 1)"
} >&2
cat "$file"
