# shellcheck shell=bash
# Sourced by deploy-cluster.sh: backup and restore. Everything that lasts lies in Redis: queues, jobs, results, marks;
# but for the file of the audit log, which a backup has, and the bytes of artifacts, which it lacks: docs/operations.md.

# As docker-compose.yml has it.
readonly AUDIT_FILE=/var/lib/audit/audit.jsonl
readonly BY_HAND='A local cluster: stop it and copy its data by hand, docs/operations.md#backup-and-restore'

# -- backup -----------------------------------------------------------------------------------------------------------

cmd_backup() { # backup FILE
  local file NO_DOCKER=$BY_HAND
  file=$(backup_path "$@")
  need_docker
  read_config
  need_own_project
  local redis
  redis=$(running_server)
  [[ -n $redis ]] || fail 1 "Redis does not run in Docker, or is not healthy, so there is nothing to copy from." \
    "Start the cluster: ./deploy-cluster.sh docker" "$BY_HAND"
  if [[ -n $DRY ]]; then
    quoted docker exec -i "$redis" sh -s "< deploy/docker/dump-redis.sh"
    quoted docker exec -i COORDINATOR python3 - dump "$AUDIT_FILE" "< deploy/docker/audit_file.py"
    quoted tar -czf "$file" manifest.json dump.rdb audit.jsonl
  else
    make_backup "$redis" "$file"
  fi
}

running_server() { # a server of Redis that serves, or nothing; with deploy/ha.yml there are three
  local service
  for service in redis redis-replica-1 redis-replica-2; do
    running_id "$service" | grep . && return
  done
  return 0
}

make_backup() { # make_backup CONTAINER FILE
  docker exec -i "$1" sh -s <deploy/docker/dump-redis.sh >"$WORK/dump.rdb" 2>"$WORK/log" || {
    redacted <"$WORK/log" >&2
    fail 1 "Redis could not be copied; see the lines above." "See: ./deploy-cluster.sh logs redis"
  }
  copy_audit_file
  write_backup "$2"
}

copy_audit_file() { # after Redis, so that the file has all that Redis no longer keeps
  in_coordinator deploy/docker/audit_file.py dump "$AUDIT_FILE" >"$WORK/audit.jsonl" 2>"$WORK/audit.log" && return
  rm -f "$WORK/audit.jsonl"
  note "The file of the audit log is not in this backup: $(grep -s . "$WORK/audit.log" | tail -n 1 | grep . || echo "no coordinator serves")."
}

# -- restore ----------------------------------------------------------------------------------------------------------

cmd_restore() { # restore FILE [--yes]
  local file='' yes='' cpus gpus
  # shellcheck disable=SC2034  # used by what is loaded later
  local NO_DOCKER=$BY_HAND
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

confirm_restore() { # confirm_restore YES PATH: only where there is something to lose
  docker volume ls --quiet --filter "label=$LABEL.project=$PROJECT" --filter "label=$LABEL.volume=redis-data" | grep -q . || return 0
  local jobs='' unfinished
  jobs=$(in_coordinator deploy/docker/status.py json 2>/dev/null | grep -oE '"jobs":\{[^}]*\}') || true
  unfinished=$(grep -oE '"(queued|running|finishing|cancelling)":[1-9][0-9]*' <<<"$jobs" | tr -d '"' | paste -sd , - | sed 's/,/, /g') || true
  say "This replaces every job and result by those of $2 (made $(in_manifest made), $(in_manifest keys) keys)."
  [[ -z $unfinished ]] || say "Jobs that have not ended are there and would be lost: $unfinished"
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
  [[ -n $DRY ]] || say "Restored $(sed -n 's/^keys //p' "$WORK/loaded") keys."
  [[ -n $DRY ]] || say "Tokens that were revoked since the backup are valid again: look at cluster token list."
  [[ -n $DRY ]] || tell_up
}

stop_writers() { # those first that write, so that Redis ends with all they had to say
  any_running || return 0
  worker_services
  # First who would start workers again.
  ! has_service autoscaler || compose_run stop autoscaler "$POOL"
  compose_run stop coordinator "${WORKERS[@]}"
  compose_run stop redis
}

load_dump() { # load_dump CONTAINER USER IMAGE: on the volumes of that container
  # shellcheck disable=SC2054  # commas within options
  local command=(docker run --rm --interactive --init --network none --user "$2" --read-only --tmpfs /tmp:size=16m,mode=1777
    --cap-drop ALL --security-opt no-new-privileges:true --volumes-from "$1" --entrypoint sh "$3")
  if [[ -n $DRY ]]; then
    # shellcheck disable=SC2016
    quoted "${command[@]}" -c '$(<deploy/docker/load-redis.sh)' '< dump.rdb'
    return
  fi
  "${command[@]}" -c "$(<deploy/docker/load-redis.sh)" <"$WORK/dump.rdb" >"$WORK/loaded" 2>"$WORK/log"
}

load_audit_file() { # where there is none; one that is there is never overwritten
  local id user image state name
  compose_run create coordinator
  id=$(containers coordinator | awk '{ print $1; exit }')
  if [[ -n $DRY ]]; then
    user=USER image=IMAGE id=${id:-COORDINATOR}
  else
    read -r user image < <(docker inspect --format '{{.Config.User}} {{.Image}}' "$id")
  fi
  # shellcheck disable=SC2054  # commas within options
  local command=(docker run --rm --interactive --init --network none --user "$user" --read-only --cap-drop ALL
    --security-opt no-new-privileges:true --volumes-from "$id" --entrypoint python3 "$image")
  if [[ -n $DRY ]]; then
    # shellcheck disable=SC2016
    quoted "${command[@]}" -c '$(<deploy/docker/audit_file.py)' load "$AUDIT_FILE" '< audit.jsonl'
    return
  fi
  "${command[@]}" -c "$(<deploy/docker/audit_file.py)" load "$AUDIT_FILE" <"$WORK/audit.jsonl" >"$WORK/loaded_audit" 2>"$WORK/log" || {
    redacted <"$WORK/log" | tail -n 5 >&2
    note "The file of the audit log could not be put back; see the lines above. The file that is there is as it was."
    return 0
  }
  read -r state name <"$WORK/loaded_audit" || true
  case $state in
    put) say "The file of the audit log was put back." ;;
    kept) say "The file of the audit log stays: an entry rollback will name what this backup does not have." ;;
    aside) note "The file of the audit log was that of another log: it is called $name now, and the backup's has its place." ;;
  esac
}

undo_restore() { # the old data was not touched: go on with it
  redacted <"$WORK/log" | tail -n 20 >&2
  complain "the backup could not be loaded; see the lines above." "The data is as it was; starting it again."
  compose_run up -d --wait --wait-timeout "$START_SECONDS"
  fail 1 "nothing was restored; the cluster runs with the data that it had."
}
