# shellcheck shell=bash
# Sourced by deploy-cluster.sh: backup and restore. Everything that lasts lies in Redis: queues, jobs, results, marks.

readonly BACKUP_FORMAT=1

sha256() { # sha256 FILE
  if command -v sha256sum >/dev/null; then sha256sum "$1"; else shasum -a 256 "$1"; fi | cut -d ' ' -f 1
}

# -- backup -----------------------------------------------------------------------------------------------------------

cmd_backup() { # backup FILE
  [[ $# -eq 1 && $1 != -* ]] || wrong "backup takes one file, such as backup.tar.gz."
  local file
  file=$(from_caller "$1")
  [[ ! -e $file ]] || fail 2 "$file is there already and is not overwritten." "Give another name, such as $1.$(date +%Y%m%d)"
  [[ -d $(dirname "$file") && -w $(dirname "$file") ]] || fail 2 "no file can be written in $(dirname "$file")."
  need_docker
  read_config
  need_own_project
  local redis
  redis=$(running_id redis)
  [[ -n $redis ]] || fail 1 "Redis does not run in Docker, so there is nothing to copy from." \
    "Start the cluster: ./deploy-cluster.sh docker    A local cluster: stop it and copy the folder .cluster/redis"
  if [[ -n $DRY ]]; then
    quoted docker exec -i "$redis" sh -s "< deploy/docker/dump-redis.sh"
    quoted tar -czf "$file" manifest.json dump.rdb
  else
    make_backup "$redis" "$file"
  fi
}

make_backup() { # make_backup CONTAINER FILE
  docker exec -i "$1" sh -s <deploy/docker/dump-redis.sh >"$WORK/dump.rdb" 2>"$WORK/log" || {
    redacted <"$WORK/log" >&2
    fail 1 "Redis could not be copied; see the lines above." "See: ./deploy-cluster.sh logs redis"
  }
  [[ $(sha256 "$WORK/dump.rdb") == "$(fact sha256)" ]] || fail 1 "the copy is not whole: its checksum differs." "Run the same command again."
  manifest >"$WORK/manifest.json"
  local part
  part=$(umask 077 && mktemp "$2.XXXXXX")
  if ! tar -C "$WORK" -czf "$part" manifest.json dump.rdb || ! tar -tzf "$part" >/dev/null; then
    rm -f "$part"
    fail 1 "the backup could not be written to $(dirname "$2")." "Is its disk full? Nothing is left there."
  fi
  mv -n "$part" "$2"
  say "Written: $2 ($(fact keys) keys, $(($(wc -c <"$2") / 1024 + 1)) KB). Put it back: ./deploy-cluster.sh restore FILE"
}

fact() { sed -n "s/^fact $1 //p" "$WORK/log"; } # fact NAME: of the dump just made

manifest() {
  printf '{"format": %s, "version": "%s", "made": "%s", "project": "%s", "redis_version": "%s", "keys": %s, "bytes": %s, "sha256": "%s"}\n' \
    "$BACKUP_FORMAT" "$(version)" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$PROJECT" \
    "$(fact redis_version)" "$(fact keys)" "$(fact bytes)" "$(fact sha256)"
}

# -- restore ----------------------------------------------------------------------------------------------------------

cmd_restore() { # restore FILE [--yes]
  local file='' yes='' word cpus gpus
  forget_overrides
  for word in "$@"; do
    case $word in
      --yes) yes=yes ;;
      -*) wrong "restore has no option '$word'." ;;
      *) if [[ -z $file ]]; then file=$word; else wrong "restore takes one file."; fi ;;
    esac
  done
  [[ -n $file ]] || wrong "restore takes one file, made by ./deploy-cluster.sh backup."
  file=$(from_caller "$file")
  open_backup "$file"
  gpus=$(count GPU_WORKERS 0)
  cpus=$(count CPU_WORKERS 1)
  preflight $((cpus + gpus)) "$gpus"
  alone
  confirm_restore "$yes" "$file"
  restore_all
}

open_backup() { # open_backup PATH: its parts lie in $WORK afterwards, checked
  [[ -f $1 ]] || fail 2 "there is no file $1."
  tar -C "$WORK" -xzf "$1" manifest.json dump.rdb 2>/dev/null ||
    fail 1 "$1 is no whole backup of ./deploy-cluster.sh." "Take another copy."
  [[ $(in_manifest format) == "$BACKUP_FORMAT" ]] ||
    fail 1 "$1 has format '$(in_manifest format)', and this version reads $BACKUP_FORMAT." "Use the version that made it: $(in_manifest version)"
  [[ $(head -c 5 "$WORK/dump.rdb") == REDIS && $(sha256 "$WORK/dump.rdb") == "$(in_manifest sha256)" ]] ||
    fail 1 "$1 is damaged: its checksum differs." "Take another copy."
}

in_manifest() { sed -nE "s/.*\"$1\": \"?([^\",}]*).*/\1/p" "$WORK/manifest.json"; }

confirm_restore() { # confirm_restore YES PATH: only where there is something to lose
  docker volume ls --quiet --filter "label=$(label project)=$PROJECT" --filter "label=$(label volume)=redis-data" | grep -q . || return 0
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
  env_line CPU_WORKERS >/dev/null || write_counts 1 0
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
  compose_run up -d --wait --wait-timeout "$START_SECONDS"
  need_good
  [[ -n $DRY ]] || say "Restored $(sed -n 's/^keys //p' "$WORK/loaded") keys."
  [[ -n $DRY ]] || tell_up
}

stop_writers() { # those first that write, so that Redis ends with all they had to say
  any_running || return 0
  worker_services
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

undo_restore() { # the old data was not touched: go on with it
  redacted <"$WORK/log" | tail -n 20 >&2
  complain "the backup could not be loaded; see the lines above." "The data is as it was; starting it again."
  compose_run up -d --wait --wait-timeout "$START_SECONDS"
  fail 1 "nothing was restored; the cluster runs with the data that it had."
}
