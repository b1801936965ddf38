# shellcheck shell=bash
# Sourced by deploy-cluster.sh. Implements the command autoscale, which adjusts the number of workers.
#
# A worker is drained before its container stops. If the API does not answer, the number of workers does not change.
# .env always contains the current number of containers, so a plain `docker compose up -d` starts and stops none.

readonly ROUND_SECONDS=${ROUND_SECONDS:-5}

docker_autoscale() { # autoscale [--min N] [--max M] [--once]
  local least most once=$DRY
  forget_overrides
  least=$(count AUTOSCALE_MIN 1)
  most=$(count AUTOSCALE_MAX 10)
  while (($#)); do
    case $1 in
      --min) least=${2:-none} && shift ;;
      --max) most=${2:-none} && shift ;;
      --once) once=yes ;;
      *) wrong "autoscale has no option '$1'." ;;
    esac
    (($# == 0)) || shift
  done
  number "the least number of workers" "$least" 1 "$MOST_WORKERS"
  number "the largest number of workers" "$most" 1 "$MOST_WORKERS"
  ((least <= most)) || wrong "--min ($least) must not exceed --max ($most)."
  # Variables of the environment would override the new values in .env.
  unset AUTOSCALE_MIN AUTOSCALE_MAX
  need_docker_cluster
  only_one_autoscale
  set_limits "$least" "$most"
  if [[ -n $once ]]; then autoscale_round; else follow_need "$least" "$most"; fi
}

need_docker_cluster() {
  need_docker
  read_config
  need_own_project
  [[ -n $PRETENDED ]] || any_running coordinator || fail 1 "no cluster of this checkout is running in Docker." "Start one: ./deploy-cluster.sh docker"
  ! any_running autoscaler || fail 5 "the service autoscaler already scales this cluster." \
    "To scale it from here, remove autoscale from COMPOSE_PROFILES and run ./deploy-cluster.sh docker."
}

only_one_autoscale() {
  [[ -z $DRY ]] && command -v flock >/dev/null || return 0
  exec 8<deploy/docker/autoscale.sh
  flock -n 8 || fail 5 "another ./deploy-cluster.sh autoscale already scales this cluster."
}

set_limits() { # set_limits LEAST MOST: coordinators choose a number within these limits; fewer workers than LEAST raise an alert
  local cores lanes gpus
  gpus=$(count GPU_WORKERS 0)
  cores=$(engine_cores)
  lanes=$(setting WORKER_THREADS 0)
  ((lanes > 0)) || lanes=$cores
  ((lanes * $2 <= cores)) ||
    note "$2 workers have $((lanes * $2)) lanes on $cores cores; more than $cores lanes are not faster. See WORKER_THREADS."
  alone
  put "AUTOSCALE_MIN=$1" "AUTOSCALE_MAX=$2" "CLUSTER_SIZE=$(($1 + gpus + $(runners)))"
  read_config
  roll coordinator
  let_others
}

let_others() { # release the lock that allows only one changing command
  exec 9<&-
}

# -- rounds -----------------------------------------------------------------------------------------------------------

follow_need() { # follow_need LEAST MOST: adjust the number of workers until Ctrl-C
  trap end_autoscale INT TERM
  say "Adjusting the number of workers to the number needed, from $1 to $2. After Ctrl-C, the current workers keep running."
  while true; do
    autoscale_round
    sleep "$ROUND_SECONDS" || true
  done
}

end_autoscale() { # resume draining workers, because this script will no longer stop them
  trap '' INT TERM
  local ids=() verb name stay=continue
  mapfile -t ids < <(containers cpu-worker | awk '{ print $1 }')
  while read -r verb name; do
    [[ $verb != resume ]] || say "Resumed $name."
  done < <(in_coordinator deploy/docker/autoscale.py release "${ids[@]}" || true)
  ((${#ids[@]} != 1)) || stay=continues
  say "Stopped autoscaling; $(counted ${#ids[@]} "CPU worker") $stay. Change the number: ./deploy-cluster.sh scale N"
  end_said
  exit 130
}

autoscale_round() {
  if [[ -n $PRETENDED ]]; then
    quoted docker exec -i COORDINATOR python3 - look "< deploy/docker/autoscale.py"
    return
  fi
  local ids=() lines verb=step
  [[ -z $DRY ]] || verb=look
  mapfile -t ids < <(containers cpu-worker | awk '{ print $1 }')
  if ! lines=$(in_coordinator deploy/docker/autoscale.py "$verb" "${ids[@]}" 2>"$WORK/log"); then
    note "No worker was started or stopped: $(tail -n 1 "$WORK/log" | grep . || echo "no coordinator is running")."
    return 0
  fi
  tell_steady "${#ids[@]}" "$lines"
  (alone && do_lines "${#ids[@]}" <<<"$lines") || note "this round failed; the next round tries again."
}

STEADY='' # number of needed workers and containers in the last printed message
tell_steady() { # tell_steady CONTAINERS LINES: print a message once for consecutive rounds without changes
  local need=${2#need } more=''
  if [[ $2 == *$'\n'* ]]; then
    STEADY=''
  elif [[ $STEADY != "$need $1" ]]; then
    STEADY="$need $1"
    ((need >= $1)) || more=': surplus workers finish their leases first'
    say "$(stamp) $need workers needed, $1 running$more."
  fi
}

do_lines() { # do_lines CONTAINERS: execute the output of autoscale.py, which documents its lines
  local verb what need='' left=$1
  while read -r verb what; do
    case $verb in
      need) need=$what ;;
      drain) say "$(stamp) $need workers needed, $left running: draining $what." ;;
      resume) say "$(stamp) $need workers needed: resuming $what." ;;
      stop)
        left=$((left - 1))
        say "$(stamp) $need workers needed: stopping container ${what:0:12}, which has finished its leases."
        run_quiet docker stop "$what" </dev/null && run_quiet docker rm "$what" </dev/null && put "CPU_WORKERS=$left"
        ;;
      scale)
        say "$(stamp) $need workers needed, $left running: starting $((what - left))."
        put "CPU_WORKERS=$what"
        compose_run up -d --no-recreate cpu-worker
        ;;
    esac
  done
}

stamp() { date +%H:%M:%S; }
