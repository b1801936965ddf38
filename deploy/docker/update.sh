# shellcheck shell=bash
# Sourced by deploy-cluster.sh. Updates a running cluster.
#
# `docker compose up -d` alone would recreate all replicas of a service at about the same time, and requests would fail.
# --no-deps is not used: before Compose 2.32 it changes the configuration's hash, so the next plain `up` recreates all.
# Redis is updated first: Compose before 2.39 recreates all dependents of a service that it recreates in the same run.

#: Wait time in seconds until nginx knows new replicas; it resolves their names every 2 s (nginx/conf).
readonly DNS_SECONDS=5
WORKERS=() # names of services whose containers run jobs

update() {
  need_readable_data
  say "The cluster is running. Updating changed services."
  update_redis
  roll coordinator
  roll web
  worker_services
  drop_gpu_workers
  # Workers return their leases when they receive the stop signal.
  compose_run up -d --wait --wait-timeout "$START_SECONDS" "${WORKERS[@]}"
  compose_run up -d --wait --wait-timeout "$START_SECONDS" "${BUT_LATER[@]}"
  reread prometheus
}

need_readable_data() { # fail if the container is from an earlier version of this project, which used Redis 7.4
  local id version
  id=$(running_id redis)
  [[ -n $id ]] || return 0
  version=$(docker exec "$id" redis-server --version 2>/dev/null) || return 0
  [[ ! $version =~ ^Redis.*v=(7\.[4-9]|[89]\.|[1-9][0-9]+\.)[0-9.]* ]] ||
    fail 1 "this version uses Valkey, which cannot read the data of ${BASH_REMATCH[0]}." \
      "No container was changed. Convert the data: ./deploy-cluster.sh backup FILE, then ./deploy-cluster.sh restore FILE"
}

update_redis() { # also recreate Redis if its users changed, because a mounted secret keeps its old content
  local id
  id=$(running_id redis)
  if [[ -z $id ]] || docker exec "$id" cat /run/secrets/redis.acl 2>/dev/null | cmp -s - "$SECRETS/redis.acl"; then
    compose_run up -d --wait --wait-timeout "$START_SECONDS" redis
  else
    compose_run up -d --force-recreate --wait --wait-timeout "$START_SECONDS" redis
  fi
}

worker_services() { # sets WORKERS
  WORKERS=(cpu-worker)
  if has_service gpu-worker; then WORKERS+=(gpu-worker); fi
}

drop_gpu_workers() { # remove GPU workers, which would keep running after their profile was disabled
  has_service gpu-worker || [[ -z $(containers gpu-worker) ]] || compose_run --profile gpu rm --stop --force gpu-worker
}

reread() { # reread SERVICE: reload the mounted configuration, because its changes do not recreate the container
  local id
  id=$(running_id "$1")
  [[ -z $id ]] || run_quiet docker kill --signal HUP "$id"
}

# -- updates without downtime -----------------------------------------------------------------------------------------

roll() { # roll SERVICE: start new replicas next to the old ones, and remove the old ones when the new ones are serving
  local old=() wanted
  has_service "$1" || return 0
  drop_dead "$1"
  mapfile -t old < <(obsolete "$1")
  ((${#old[@]})) || return 0
  read_replicas
  wanted=${REPLICAS[$1]:-1}
  say "$1: starting $wanted new replicas to replace ${#old[@]} ..."
  compose_run up -d --no-recreate --scale "$1=$((wanted + ${#old[@]}))" "$1"
  new_serve "$1" "$wanted" "${old[@]}" || undo_roll "$1" "${old[@]}"
  run_quiet docker stop "${old[@]}"
  run_quiet docker rm "${old[@]}"
}

obsolete() { # obsolete SERVICE: print the IDs of containers with an outdated configuration, image or secret
  local hash image id rest
  hash=$("${COMPOSE[@]}" config --hash "$1" | awk '{ print $2 }')
  image=$(docker image inspect --format '{{.Id}}' "$(image_of "$1")" 2>/dev/null) || image=gone
  while read -r id rest; do
    if [[ $rest != *" $hash $image" ]] || other_secret "$1" "$id"; then printf '%s\n' "$id"; fi
  done < <(containers "$1")
}

image_of() { # image_of SERVICE
  awk -v service="  $1:" '/^  [^ ]/ || /^[^ ]/ { inside = ($0 == service) } inside && /^    image: / { print $2 }' "$WORK/config.yml"
}

other_secret() { # other_secret SERVICE ID: true if a mounted secret is outdated, because mounts keep the old content
  local name
  [[ $1 == coordinator ]] || return 1
  for name in cluster_token secrets_key; do
    [[ -f $SECRETS/$name ]] || continue
    docker exec "$2" cat "/run/secrets/$name" 2>/dev/null | cmp -s - "$SECRETS/$name" || return 0
  done
  return 1
}

drop_dead() { # drop_dead SERVICE: remove containers that are not running, which Compose would count as replicas
  local dead=()
  mapfile -t dead < <(containers "$1" | awk '$4 != "running" { print $1 }')
  ((${#dead[@]} == 0)) || run_quiet docker rm --force "${dead[@]}"
}

new_serve() { # new_serve SERVICE WANTED OLD...: wait until enough new replicas are serving and nginx knows them
  [[ -z $DRY ]] || return 0
  await "$START_SECONDS" enough_serve "$@" || return 1
  sleep "$DNS_SECONDS"
}

enough_serve() { # enough_serve SERVICE WANTED OLD...
  local new
  new=$(containers "$1" | good | grep -vcxF -f <(printf '%s\n' "${@:3}")) || true
  ((new >= $2))
}

undo_roll() { # undo_roll SERVICE OLD...: remove the new replicas and keep the old ones
  local new=()
  mapfile -t new < <(containers "$1" | awk '{ print $1 }' | grep -vxF -f <(printf '%s\n' "${@:2}"))
  show_bad
  ((${#new[@]} == 0)) || run_quiet docker rm --force "${new[@]}"
  fail 4 "the new $1 did not become healthy within $START_SECONDS s. The old replicas keep serving; later services were not updated." \
    "Fix the problem in the lines above, then run the same command again."
}
