#!/usr/bin/env bash
# Create the stack's passwords in ./secrets, from which docker-compose.yml mounts them.
# Existing passwords are kept. Derived files, such as the Redis users, are rewritten when they change.
# Usage: deploy/secrets.sh [--token]    --token also creates a CLUSTER_TOKEN, which all API calls then require.
# SECRETS_FOLDER names another folder.
# To change a password, delete its files, run this script again, and run docker compose up -d --force-recreate.
# Exit codes: 0 success, 1 failure, 2 usage error.
set -Eeuo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Containers read the files under their own user IDs, so the files are readable but the folder is closed.
umask 022
readonly FOLDER=${SECRETS_FOLDER:-secrets}
readonly ROLES=(worker coordinator exporter replica sentinel)
STAGE=''   # folder of new files, which are moved when all are complete
RANDOM_HEX='' # random digits that are not used yet
DIGESTS='' # lines of SHA-256 digest and role, in the format of Redis

random_password() { # random_password VARIABLE: set the variable to 48 hexadecimal digits
  if [[ -z $RANDOM_HEX ]]; then
    RANDOM_HEX=$(od -An -v -N480 -tx1 /dev/urandom)
    RANDOM_HEX=${RANDOM_HEX//[!0-9a-f]/}
  fi
  printf -v "$1" %s "${RANDOM_HEX:0:48}"
  RANDOM_HEX=${RANDOM_HEX:48}
}

text_of() { # text_of NAME VARIABLE: set the variable to the text of a file, preferring the new version
  local file=$FOLDER/$1 text
  [[ ! -e $STAGE/$1 ]] || file=$STAGE/$1
  IFS= read -r -d '' text <"$file" || true
  printf -v "$2" %s "${text%$'\n'}"
}

keep() { # keep NAME [TEXT]: create a missing file; without TEXT, with a new password
  [[ ! -e $FOLDER/$1 ]] || return 0
  local password
  if (($# > 1)); then put "$1" "$2"; else random_password password && put "$1" "$password"; fi
}

put() { # put NAME TEXT: write a file if its text differs
  local before
  if [[ -e $FOLDER/$1 ]]; then
    text_of "$1" before
    [[ $before != "$2" ]] || return 0
  fi
  printf '%s\n' "$2" >"$STAGE/$1"
}

publish() { # move new files to their final paths
  local files=("$STAGE"/*)
  [[ -e ${files[0]} ]] || return 0
  mv "${files[@]}" "$FOLDER/"
  printf 'created %s\n' "${files[@]/#"$STAGE"/$FOLDER}" >&2
}

redis_files() { # create a password for each user of Redis and Sentinel; the operator's file is redis_password
  local role password
  keep redis_password
  for role in "${ROLES[@]}"; do keep "redis_${role}_password"; done
  for role in worker coordinator; do
    text_of "redis_${role}_password" password
    put "redis_${role}_url" "redis://$role:$password@redis:6379/0"
    # Servers use this URL instead if Sentinel monitors Redis.
    put "redis_${role}_sentinel_url" "redis+sentinel://$role:$password@sentinel:26379/threads/0"
  done
  # The file has a password by address. Newer exporters look up the address with the user, Debian's the other one.
  text_of redis_exporter_password password
  put redis_exporter.json "{\"redis://redis:6379\": \"$password\", \"redis://exporter@redis:6379\": \"$password\"}"
  hash_passwords
  put redis.acl "$(users redis)"
  put sentinel.acl "$(users sentinel)"
}

hash_passwords() { # sets DIGESTS
  local role password
  for role in operator "${ROLES[@]}"; do
    if [[ $role == operator ]]; then text_of redis_password password; else text_of "redis_${role}_password" password; fi
    printf '%s' "$password" >"$STAGE/.$role"
  done
  if command -v sha256sum >/dev/null; then DIGESTS=$(cd "$STAGE" && sha256sum .[a-z]*); else DIGESTS=$(cd "$STAGE" && shasum -a 256 .[a-z]*); fi
}

users() { # users redis|sentinel: print the users of deploy/NAME-users.acl, and foreign users in the existing file
  local lines digest role line user='^user +([^ ]+) '
  lines=$(<"deploy/$1-users.acl")
  while read -r digest role; do lines=${lines//"#@${role#.}@"/"#$digest"}; done <<<"$DIGESTS"
  printf '%s\n' "$lines"
  [[ -e $FOLDER/$1.acl ]] || return 0
  while read -r line; do
    [[ ! $line =~ $user || $'\n'$lines == *$'\n'"user ${BASH_REMATCH[1]} "* ]] || printf '%s\n' "$line"
  done <"$FOLDER/$1.acl"
}

token_file() { # token_file YES: an empty token disables authentication
  local token=''
  [[ ! -e $FOLDER/cluster_token ]] || text_of cluster_token token
  if [[ $1 == yes && -z ${token//[[:space:]]/} ]]; then
    random_password token
    put cluster_token "$token"
  else
    keep cluster_token ""
  fi
}

main() {
  local token=no
  case "$#:${1:-}" in
    0:) ;;
    1:--token) token=yes ;;
    *) printf 'usage: deploy/secrets.sh [--token]\n' >&2 && exit 2 ;;
  esac
  mkdir -p "$FOLDER"
  chmod 0700 "$FOLDER"
  STAGE=$(mktemp -d "$FOLDER/.new.XXXXXX")
  trap 'rm -rf "$STAGE"' EXIT
  redis_files
  keep grafana_admin_password
  keep secrets_key
  # A coordinator creates the token later; see ./deploy-cluster.sh docker --runner.
  keep runner_token ""
  token_file "$token"
  publish
}

main "$@"
