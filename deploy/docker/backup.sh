# shellcheck shell=bash
# Sourced by deploy-cluster.sh. Implements the commands backup and restore. Redis contains all persistent data.
# A backup also contains the audit log's file, but no contents of artifacts; see docs/operations.md.

# Path of the audit log in the container, the same as in docker-compose.yml.
readonly AUDIT_FILE=/var/lib/audit/audit.jsonl
readonly FOR_LOCAL='For a local cluster, add the option --local.'

# -- backup -----------------------------------------------------------------------------------------------------------

docker_backup() { # backup FILE
  local file NO_DOCKER=$FOR_LOCAL
  file=$(backup_path "$@")
  need_docker
  read_config
  need_own_project
  local redis
  redis=$(running_server)
  [[ -z $PRETENDED ]] || redis=REDIS
  [[ -n $redis ]] || fail 1 "Redis is not running in Docker, or is not healthy, so its data cannot be copied." \
    "Start the cluster: ./deploy-cluster.sh docker" "$FOR_LOCAL"
  if [[ -n $DRY ]]; then
    quoted docker exec -i "$redis" sh -s "< deploy/docker/dump-redis.sh"
    quoted docker exec -i COORDINATOR python3 - dump "$AUDIT_FILE" "< deploy/docker/audit_file.py"
    quoted tar -czf "$file" manifest.json dump.rdb audit.jsonl
  else
    make_backup "$redis" "$file"
  fi
}

running_server() { # print the container ID of a healthy Redis server, if any; deploy/ha.yml has three servers
  local service
  for service in redis redis-replica-1 redis-replica-2; do
    running_id "$service" | grep . && return
  done
  return 0
}

make_backup() { # make_backup CONTAINER FILE
  docker exec -i "$1" sh -s <deploy/docker/dump-redis.sh >"$WORK/dump.rdb" 2>"$WORK/log" || {
    redacted <"$WORK/log" >&2
    fail 1 "copying Redis failed; see the lines above." "See: ./deploy-cluster.sh logs redis"
  }
  copy_audit_file
  write_backup "$2"
}

copy_audit_file() { # copy the file after the Redis dump, so that it has all entries that Redis has dropped
  in_coordinator deploy/docker/audit_file.py dump "$AUDIT_FILE" >"$WORK/audit.jsonl" 2>"$WORK/audit.log" && return
  rm -f "$WORK/audit.jsonl"
  note "The backup does not contain the audit log's file: $(grep -s . "$WORK/audit.log" | tail -n 1 | grep . || echo "no coordinator is running")."
}

# -- restore ----------------------------------------------------------------------------------------------------------

docker_restore() { # restore FILE [--yes]
  local file='' yes='' cpus gpus
  # shellcheck disable=SC2034  # used by files sourced later
  local NO_DOCKER=$FOR_LOCAL
  forget_overrides
  read_restore "$@"
  file=$(from_caller "$file")
  open_backup "$file"
  gpus=$(count GPU_WORKERS 0)
  cpus=$(count CPU_WORKERS 1)
  preflight $((cpus + gpus)) "$gpus"
  ! has_service sentinel-1 || need_one_redis
  alone
  confirm_restore "$yes" "$file"
  restore_all
}

confirm_restore() { # confirm_restore YES PATH: ask only if the restore would replace data
  docker volume ls --quiet --filter "label=$LABEL.project=$PROJECT" --filter "label=$LABEL.volume=redis-data" | grep -q . || return 0
  tell_replaced "$2" "$(in_coordinator deploy/docker/status.py json 2>/dev/null || true)"
  sure "$1" "Replace them?"
}

restore_all() {
  local user image redis
  make_secrets
  read_env_line CPU_WORKERS || write_counts 1 0
  read_config
  stop_writers
  compose_run create redis
  redis=$(containers redis | awk '{ print $1; exit }')
  if [[ -n $DRY ]]; then
    user=USER image=IMAGE redis=${redis:-REDIS}
  else
    read -r user image < <(docker inspect --format '{{.Config.User}} {{.Image}}' "$redis")
  fi
  load_dump "$redis" "$user" "$image" || undo_restore
  [[ ! -s $WORK/audit.jsonl ]] || load_audit_file
  but_later
  compose_run up -d --wait --wait-timeout "$START_SECONDS" "${BUT_LATER[@]}"
  create_pool
  start_runner
  need_good
  [[ -n $DRY ]] || tell_restored "$(sed -n 's/^keys //p' "$WORK/loaded")"
  [[ -n $DRY ]] || tell_up
}

stop_writers() { # stop writers before Redis, so that Redis receives their last writes
  any_running || return 0
  worker_services
  # The autoscaler stops first, because it would start workers again.
  ! has_service autoscaler || compose_run stop autoscaler "$POOL"
  compose_run stop coordinator "${WORKERS[@]}"
  compose_run stop redis
}

load_dump() { # load_dump CONTAINER USER IMAGE: load the dump into the volumes of the container
  # shellcheck disable=SC2054  # the commas are part of mount options
  local command=(docker run --rm --interactive --init --network none --user "$2" --read-only --tmpfs /tmp:size=16m,mode=1777
    --cap-drop ALL --security-opt no-new-privileges:true --volumes-from "$1" --entrypoint sh "$3")
  if [[ -n $DRY ]]; then
    # shellcheck disable=SC2016
    quoted "${command[@]}" -c '$(<deploy/docker/load-redis.sh)' '< dump.rdb'
    return
  fi
  "${command[@]}" -c "$(<deploy/docker/load-redis.sh)" <"$WORK/dump.rdb" >"$WORK/loaded" 2>"$WORK/log"
}

load_audit_file() { # restore the file only if it is missing; never overwrite an existing file
  local id user image
  compose_run create coordinator
  id=$(containers coordinator | awk '{ print $1; exit }')
  if [[ -n $DRY ]]; then
    user=USER image=IMAGE id=${id:-COORDINATOR}
  else
    read -r user image < <(docker inspect --format '{{.Config.User}} {{.Image}}' "$id")
  fi
  # shellcheck disable=SC2054  # the commas are part of mount options
  local command=(docker run --rm --interactive --init --network none --user "$user" --read-only --cap-drop ALL
    --security-opt no-new-privileges:true --volumes-from "$id" --entrypoint python3 "$image")
  if [[ -n $DRY ]]; then
    # shellcheck disable=SC2016
    quoted "${command[@]}" -c '$(<deploy/docker/audit_file.py)' load "$AUDIT_FILE" '< audit.jsonl'
    return
  fi
  "${command[@]}" -c "$(<deploy/docker/audit_file.py)" load "$AUDIT_FILE" <"$WORK/audit.jsonl" >"$WORK/loaded_audit" 2>"$WORK/log" || {
    redacted <"$WORK/log" | tail -n 5 >&2
    note "The audit log's file could not be restored; see the lines above. The existing file was not changed."
    return 0
  }
  tell_audit_file
}

undo_restore() { # start the cluster again with its old data, which is unchanged
  redacted <"$WORK/log" | tail -n 20 >&2
  complain "loading the backup failed; see the lines above." "The data was not changed; starting the cluster again."
  compose_run up -d --wait --wait-timeout "$START_SECONDS"
  fail 1 "nothing was restored; the cluster is running with its previous data."
}
