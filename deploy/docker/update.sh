# shellcheck shell=bash
# Sourced by deploy-cluster.sh: the update of a cluster that runs.
#
# Why not only `docker compose up -d`: it recreates all replicas of a service at about the same time, and requests fail.
# Why never --no-deps: until Compose 2.32 it changes the configuration's hash, so that the next plain `up` recreates all.
# Why Redis alone first: Compose before 2.39 recreates all that depends on a service which it recreates in the same run.

#: nginx asks for the replicas again when 2 s have passed (nginx/conf); until then it may know only old ones.
readonly DNS_SECONDS=5
WORKERS=() # services that compute

update() {
  say "It runs: updating what has changed."
  update_redis
  roll coordinator
  roll web
  worker_services
  drop_gpu_workers
  # Workers hand back what they hold when they are told to stop.
  compose_run up -d --wait --wait-timeout "$START_SECONDS" "${WORKERS[@]}"
  compose_run up -d --wait --wait-timeout "$START_SECONDS" "${BUT_LATER[@]}"
  reread prometheus
}

update_redis() { # also when its users are others: a mounted secret stays the file it was
  local id
  id=$(running_id redis)
  if [[ -z $id ]] || docker exec "$id" cat /run/secrets/redis.acl 2>/dev/null | cmp -s - secrets/redis.acl; then
    compose_run up -d --wait --wait-timeout "$START_SECONDS" redis
  else
    compose_run up -d --force-recreate --wait --wait-timeout "$START_SECONDS" redis
  fi
}

worker_services() { # sets WORKERS
  WORKERS=(cpu-worker)
  if has_service gpu-worker; then WORKERS+=(gpu-worker); fi
}

drop_gpu_workers() { # those of a profile that is off now would run on
  has_service gpu-worker || [[ -z $(containers gpu-worker) ]] || compose_run --profile gpu rm --stop --force gpu-worker
}

reread() { # reread SERVICE: its configuration is mounted, so a change of it recreates nothing
  local id
  id=$(running_id "$1")
  [[ -z $id ]] || run_quiet docker kill --signal HUP "$id"
}

# -- replicas that are never all away ---------------------------------------------------------------------------------

roll() { # roll SERVICE: new replicas beside the old ones; when they serve, the old ones go
  local old=() wanted
  has_service "$1" || return 0
  drop_dead "$1"
  mapfile -t old < <(obsolete "$1")
  ((${#old[@]})) || return 0
  read_replicas
  wanted=${REPLICAS[$1]:-1}
  say "$1: $wanted new beside ${#old[@]} old ..."
  compose_run up -d --no-recreate --scale "$1=$((wanted + ${#old[@]}))" "$1"
  new_serve "$1" "$wanted" "${old[@]}" || undo_roll "$1" "${old[@]}"
  run_quiet docker stop "${old[@]}"
  run_quiet docker rm "${old[@]}"
}

obsolete() { # obsolete SERVICE: ids of what runs from another configuration, image or token than is wanted
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

other_secret() { # other_secret SERVICE ID: a mounted secret stays the file it was, when a new one takes its place
  local name
  [[ $1 == coordinator ]] || return 1
  for name in cluster_token secrets_key; do
    [[ -f secrets/$name ]] || continue
    docker exec "$2" cat "/run/secrets/$name" 2>/dev/null | cmp -s - "secrets/$name" || return 0
  done
  return 1
}

drop_dead() { # drop_dead SERVICE: what does not run serves nobody, and Compose would count it
  local dead=()
  mapfile -t dead < <(containers "$1" | awk '$4 != "running" { print $1 }')
  ((${#dead[@]} == 0)) || run_quiet docker rm --force "${dead[@]}"
}

new_serve() { # new_serve SERVICE WANTED OLD...: waits until as many others than the old ones serve, and nginx knows it
  [[ -z $DRY ]] || return 0
  await "$START_SECONDS" enough_serve "$@" || return 1
  sleep "$DNS_SECONDS"
}

enough_serve() { # enough_serve SERVICE WANTED OLD...
  local new
  new=$(containers "$1" | good | grep -vcxF -f <(printf '%s\n' "${@:3}")) || true
  ((new >= $2))
}

undo_roll() { # undo_roll SERVICE OLD...: the old replicas go on
  local new=()
  mapfile -t new < <(containers "$1" | awk '{ print $1 }' | grep -vxF -f <(printf '%s\n' "${@:2}"))
  show_bad
  ((${#new[@]} == 0)) || run_quiet docker rm --force "${new[@]}"
  fail 4 "the new $1 did not become healthy within $START_SECONDS s. The old replicas serve on; nothing later was updated." \
    "Mend what the lines above say, then run the same command again."
}
