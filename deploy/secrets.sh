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
readonly FOLDER=${SECRETS_FOLDER:-secrets}
readonly ROLES=(worker coordinator exporter replica sentinel)

random() { # 48 hexadecimal digits
  od -An -N24 -tx1 /dev/urandom | tr -d ' \n'
}

keep() { # keep NAME [TEXT]: writes a file that is not there yet; without TEXT, a new password
  [[ -e $FOLDER/$1 ]] || put "$1" "${2-$(random)}"
}

put() { # put NAME TEXT: writes a file whose content is another, whole or not at all
  [[ ! -e $FOLDER/$1 || $(<"$FOLDER/$1") != "$2" ]] || return 0
  printf '%s\n' "$2" >"$FOLDER/.$1.new"
  chmod 0644 "$FOLDER/.$1.new"
  mv "$FOLDER/.$1.new" "$FOLDER/$1"
  printf 'made %s\n' "$FOLDER/$1" >&2
}

digest() { # digest TEXT: SHA-256, as Redis wants it
  local sum
  if command -v sha256sum >/dev/null; then sum=$(printf '%s' "$1" | sha256sum); else sum=$(printf '%s' "$1" | shasum -a 256); fi
  printf '%s' "${sum%% *}"
}

redis_files() { # a password for each user of Redis and of its sentinels; the operator's has no name
  local role
  keep redis_password
  for role in "${ROLES[@]}"; do keep "redis_${role}_password"; done
  for role in worker coordinator; do
    put "redis_${role}_url" "redis://$role:$(<"$FOLDER/redis_${role}_password")@redis:6379/0"
    # Used instead where sentinels watch over Redis.
    put "redis_${role}_sentinel_url" "redis+sentinel://$role:$(<"$FOLDER/redis_${role}_password")@sentinel:26379/threads/0"
  done
  put redis_exporter.json "$(exporter_passwords)"
  put redis.acl "$(users redis)"
  put sentinel.acl "$(users sentinel)"
}

exporter_passwords() { # by address: newer exporters look for the one with the user in it, Debian's for the other
  local password
  password=$(<"$FOLDER/redis_exporter_password")
  printf '{"redis://redis:6379": "%s", "redis://exporter@redis:6379": "%s"}' "$password" "$password"
}

users() { # users redis|sentinel: the lines of deploy/NAME-users.acl, and of the file those that are not ours
  local lines role
  lines=$(<"deploy/$1-users.acl")
  for role in "${ROLES[@]}"; do
    lines=${lines//"#@$role@"/"#$(digest "$(<"$FOLDER/redis_${role}_password")")"}
  done
  lines=${lines//"#@operator@"/"#$(digest "$(<"$FOLDER/redis_password")")"}
  printf '%s\n' "$lines"
  awk 'NR == FNR { ours[$2]; next } $1 == "user" && !($2 in ours)' <(printf '%s\n' "$lines") "$FOLDER/$1.acl" 2>/dev/null || true
}

token_file() { # token_file YES: an empty token asks nobody for one
  if [[ $1 == yes && ! -s $FOLDER/cluster_token ]] || [[ $1 == yes && -z $(tr -d '[:space:]' <"$FOLDER/cluster_token") ]]; then
    rm -f "$FOLDER/cluster_token"
    keep cluster_token
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
  redis_files
  keep grafana_admin_password
  keep secrets_key
  # Made by a coordinator once there is one: ./deploy-cluster.sh docker --runner.
  keep runner_token ""
  token_file "$token"
}

main "$@"
