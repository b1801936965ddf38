# shellcheck shell=bash
# Sourced by deploy-cluster.sh. Implements the commands docker and scale.

# -- docker -----------------------------------------------------------------------------------------------------------

cmd_docker() { # docker [N [G]] [--runner] [--require-gpu]
  local numbers=() word runner='' needs_gpu=''
  for word in "$@"; do
    case $word in
      --runner) runner=yes ;;
      --require-gpu) needs_gpu=yes ;;
      --*) wrong "docker has no option '$word'." ;;
      *) numbers+=("$word") ;;
    esac
  done
  ((${#numbers[@]} <= 2)) || wrong "docker accepts two numbers: all workers, and GPU workers among them."
  start_docker "$runner" "$needs_gpu" "${numbers[@]}"
}

start_docker() { # start_docker RUNNER NEEDS_GPU [N [G]]
  local all=${3:-} gpus=${4:-0} cores
  forget_overrides
  if [[ -z $all ]]; then
    gpus=$(count GPU_WORKERS 0)
    all=$(count CPU_WORKERS 1)
    all=$((all + gpus))
  fi
  check_counts "$all" "$gpus"
  if ((gpus)) && [[ -z $2 && $(gpus) == 0 ]]; then
    say "This machine has no GPU, so $(counted "$all" "CPU worker") will start. To fail instead, add --require-gpu."
    gpus=0
  fi
  preflight "$all" "$gpus"
  cores=$(engine_cores)
  warn_of_many $((all - gpus)) "$cores"
  alone
  [[ -z $1 ]] || turn_on_runner
  ! wants_runner || close_api
  make_secrets
  write_counts $((all - gpus)) "$gpus" "$(lanes_for $((all - gpus)) "$cores")"
  admit_engine_proxy
  read_config
  build
  bring_up
  keep_context "$(address COORDINATOR_PORT 3000)"
  [[ -n $DRY ]] || tell_up
}

check_counts() { # check_counts WORKERS GPU_WORKERS
  number "the number of workers" "$1" 1 "$MOST_WORKERS"
  number "the number of GPU workers" "$2" 0 "$MOST_WORKERS"
  (($2 <= $1)) || wrong "$2 GPU workers exceed the total of $(counted "$1" worker); \`docker 5 2\` starts 3 CPU workers and 2 GPU workers."
}

preflight() { # preflight WORKERS GPU_WORKERS
  need_docker
  read_config
  need_own_project
  check_gpus "$1" "$2"
  check_room
  check_ports
}

make_secrets() {
  run deploy/secrets.sh
  if wants_runner || ! on_loopback; then run deploy/secrets.sh --token; fi
}

on_loopback() { [[ $(setting BIND 127.0.0.1) =~ ^(127\.|localhost$|\[?::1\]?$) ]]; }

build() {
  if [[ -n $DRY ]]; then
    quoted "${COMPOSE[@]}" build
    return
  fi
  say "Building images (minutes the first time, seconds if nothing changed) ..."
  "${COMPOSE[@]}" build >"$WORK/log" 2>&1 </dev/null && return
  local code=$?
  tail -n 20 "$WORK/log" | redacted >&2
  explain "$code" build
}

bring_up() {
  drop_autoscaler
  drop_runner
  but_later
  if any_running coordinator; then update; else compose_run up -d --wait --wait-timeout "$START_SECONDS" "${BUT_LATER[@]}"; fi
  create_pool
  start_runner
  need_good
}

# -- scale ------------------------------------------------------------------------------------------------------------

docker_scale() { # scale N [--gpu G]
  local all='' gpus=''
  forget_overrides
  while (($#)); do
    case $1 in
      --gpu) gpus=${2:-none} && shift ;;
      -*) wrong "scale has no option '$1'." ;;
      *) if [[ -z $all ]]; then all=$1; else wrong "scale accepts one number: the total number of workers."; fi ;;
    esac
    (($# == 0)) || shift
  done
  [[ -n $gpus ]] || gpus=$(count GPU_WORKERS 0)
  check_counts "${all:-none}" "$gpus"
  scale_to "$all" "$gpus"
}

scale_to() { # scale_to WORKERS GPU_WORKERS
  need_docker
  read_config
  need_own_project
  [[ -n $PRETENDED ]] || any_running coordinator || fail 1 "no cluster of this checkout is running in Docker." "Start one: ./deploy-cluster.sh docker $1 $2"
  check_gpus "$1" "$2"
  alone
  write_counts $(($1 - $2)) "$2"
  read_config
  worker_services
  drop_gpu_workers
  compose_run up -d --no-recreate --wait --wait-timeout "$START_SECONDS" "${WORKERS[@]}"
  need_good "${WORKERS[@]}"
  # Coordinators report the number of desired workers.
  roll coordinator
  [[ -n $DRY ]] || tell_scaled "$1" "$2"
}

tell_scaled() { # tell_scaled WORKERS GPU_WORKERS
  local lanes cores
  say "$(counted $(($1 - $2)) "CPU worker"), $(counted "$2" "GPU worker")."
  lanes=$(setting WORKER_THREADS 0)
  cores=$(engine_cores)
  if threads_are_ours && [[ $lanes != "$(lanes_for $(($1 - $2)) "$cores")" ]]; then
    note "CPU workers keep their number of lanes (${lanes/#0/all cores}). To distribute the $cores cores again, run ./deploy-cluster.sh docker $1 $2."
  fi
}
