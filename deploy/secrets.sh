#!/usr/bin/env bash
# Makes the stack's passwords, once: files in ./secrets, which docker-compose.yml mounts. Passwords that exist are kept;
# files made of them, such as Redis' users, are written anew when they change.
# Usage: deploy/secrets.sh [--token]      --token: also a CLUSTER_TOKEN, which every API call then needs.
# SECRETS_FOLDER names another folder.
# To change one, delete its files, run this again, and recreate: docker compose up -d --force-recreate.
# Exit codes: 0 done, 1 failed, 2 usage.
set -Eeuo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Containers read them under numeric users of their own, so the files are readable and the folder is closed.
umask 022
readonly FOLDER=${SECRETS_FOLDER:-secrets}
readonly ROLES=(worker coordinator exporter replica sentinel)
STAGE=''   # folder of files that move to their places when all are complete
RANDOM_HEX='' # random digits that no password has yet
DIGESTS='' # lines of SHA-256 and role, as Redis expects them

random_password() { # random_password VARIABLE: sets it to 48 hexadecimal digits
  if [[ -z $RANDOM_HEX ]]; then
    RANDOM_HEX=$(od -An -v -N480 -tx1 /dev/urandom)
    RANDOM_HEX=${RANDOM_HEX//[!0-9a-f]/}
  fi
  printf -v "$1" %s "${RANDOM_HEX:0:48}"
  RANDOM_HEX=${RANDOM_HEX:48}
}

text_of() { # text_of NAME VARIABLE: sets it to the text of a file, of the new one if there is one
  local file=$FOLDER/$1 text
  [[ ! -e $STAGE/$1 ]] || file=$STAGE/$1
  IFS= read -r -d '' text <"$file" || true
  printf -v "$2" %s "${text%$'\n'}"
}

keep() { # keep NAME [TEXT]: writes a file that does not exist; without TEXT, a new password
  [[ ! -e $FOLDER/$1 ]] || return 0
  local password
  if (($# > 1)); then put "$1" "$2"; else random_password password && put "$1" "$password"; fi
}

put() { # put NAME TEXT: writes a file if its text differs
  local before
  if [[ -e $FOLDER/$1 ]]; then
    text_of "$1" before
    [[ $before != "$2" ]] || return 0
  fi
  printf '%s\n' "$2" >"$STAGE/$1"
}

publish() { # moves new files to their places
  local files=("$STAGE"/*)
  [[ -e ${files[0]} ]] || return 0
  mv "${files[@]}" "$FOLDER/"
  printf 'made %s\n' "${files[@]/#"$STAGE"/$FOLDER}" >&2
}

redis_files() { # a password for each user of Redis and of its sentinels; the operator's has no name
  local role password
  keep redis_password
  for role in "${ROLES[@]}"; do keep "redis_${role}_password"; done
  for role in worker coordinator; do
    text_of "redis_${role}_password" password
    put "redis_${role}_url" "redis://$role:$password@redis:6379/0"
    # Used instead where sentinels watch over Redis.
    put "redis_${role}_sentinel_url" "redis+sentinel://$role:$password@sentinel:26379/threads/0"
  done
  # By address: newer exporters look for the one with the user in it, Debian's for the other.
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

users() { # users redis|sentinel: the lines of deploy/NAME-users.acl, and of the file those that are not ours
  local lines digest role line user='^user +([^ ]+) '
  lines=$(<"deploy/$1-users.acl")
  while read -r digest role; do lines=${lines//"#@${role#.}@"/"#$digest"}; done <<<"$DIGESTS"
  printf '%s\n' "$lines"
  [[ -e $FOLDER/$1.acl ]] || return 0
  while read -r line; do
    [[ ! $line =~ $user || $'\n'$lines == *$'\n'"user ${BASH_REMATCH[1]} "* ]] || printf '%s\n' "$line"
  done <"$FOLDER/$1.acl"
}

token_file() { # token_file YES: an empty token asks nobody for one
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
  # Made by a coordinator once there is one: ./deploy-cluster.sh docker --runner.
  keep runner_token ""
  token_file "$token"
  publish
}

main "$@"
