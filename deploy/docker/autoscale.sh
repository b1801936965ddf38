# shellcheck shell=bash
# Sourced by deploy-cluster.sh: autoscale, which follows the workers that the cluster says it needs.
#
# A worker is drained before its container stops. .env always has the number of containers that there are, so that a
# plain `docker compose up -d` changes none. Whatever does not answer, nothing is changed until it does.

readonly ROUND_SECONDS=${ROUND_SECONDS:-5}

cmd_autoscale() { # autoscale [--min N] [--max M] [--once]
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
  ((least <= most)) || wrong "--min $least is above --max $most."
  # They would win over .env, into which they go.
  unset AUTOSCALE_MIN AUTOSCALE_MAX
  need_docker_cluster
  only_one_autoscale
  set_limits "$least" "$most"
  if [[ -n $once ]]; then autoscale_round; else follow_need "$least" "$most"; fi
}

need_docker_cluster() {
  if docker_possible; then find_project; fi
  if [[ $STATE != ours ]] && local_runs; then
    fail 1 "a local cluster has nothing to scale: its workers have all cores, idle ones cost nothing." \
      "Other workers there: ./deploy-cluster.sh local --workers N    In containers: ./deploy-cluster.sh docker"
  fi
  need_docker
  read_config
  need_own_project
  any_running coordinator || fail 1 "no cluster of this checkout runs in Docker." "Start one: ./deploy-cluster.sh docker"
  ! any_running autoscaler || fail 5 "the service autoscaler follows this cluster." \
    "Take autoscale out of COMPOSE_PROFILES and run ./deploy-cluster.sh docker, to follow it from here."
}

only_one_autoscale() {
  [[ -z $DRY ]] && command -v flock >/dev/null || return 0
  exec 8<deploy/docker/autoscale.sh
  flock -n 8 || fail 5 "another ./deploy-cluster.sh autoscale follows this cluster."
}

set_limits() { # set_limits LEAST MOST: the coordinators choose within them; fewer than LEAST is an alert
  local cores lanes gpus
  gpus=$(count GPU_WORKERS 0)
  cores=$(engine_cores)
  lanes=$(setting WORKER_THREADS 0)
  ((lanes > 0)) || lanes=$cores
  ((lanes * $2 <= cores)) ||
    note "$2 workers have $((lanes * $2)) lanes on $cores cores, where more than $cores compute nothing faster. See WORKER_THREADS."
  alone
  put "AUTOSCALE_MIN=$1" "AUTOSCALE_MAX=$2" "CLUSTER_SIZE=$(($1 + gpus + $(runners)))"
  read_config
  roll coordinator
  let_others
}

let_others() { # ends what `alone` began
  exec 9<&-
}

# -- rounds -----------------------------------------------------------------------------------------------------------

follow_need() { # follow_need LEAST MOST: until Ctrl-C
  trap end_autoscale INT TERM
  say "Following the workers that are needed, from $1 to $2. Ctrl-C ends this and leaves the workers that there are."
  while true; do
    autoscale_round
    sleep "$ROUND_SECONDS" || true
  done
}

end_autoscale() { # workers that drain go on, since nobody would stop them
  trap '' INT TERM
  local ids=() verb name stay=stay
  mapfile -t ids < <(containers cpu-worker | awk '{ print $1 }')
  while read -r verb name; do
    [[ $verb != resume ]] || say "$name works again."
  done < <(in_coordinator deploy/docker/autoscale.py release "${ids[@]}" || true)
  ((${#ids[@]} != 1)) || stay=stays
  say "Ended; $(counted ${#ids[@]} "CPU worker") $stay. Other numbers: ./deploy-cluster.sh scale N"
  end_said
  exit 130
}

autoscale_round() {
  local ids=() lines verb=step
  [[ -z $DRY ]] || verb=look
  mapfile -t ids < <(containers cpu-worker | awk '{ print $1 }')
  if ! lines=$(in_coordinator deploy/docker/autoscale.py "$verb" "${ids[@]}" 2>"$WORK/log"); then
    note "nothing is changed: $(tail -n 1 "$WORK/log" | grep . || echo "no coordinator answers")."
    return 0
  fi
  tell_steady "${#ids[@]}" "$lines"
  (alone && do_lines "${#ids[@]}" <<<"$lines") || note "this round was not completed; the next one goes on."
}

STEADY='' # what was said of a round with nothing to do
tell_steady() { # tell_steady CONTAINERS LINES: a round with nothing to do is said once
  local need=${2#need } more=''
  if [[ $2 == *$'\n'* ]]; then
    STEADY=''
  elif [[ $STEADY != "$need $1" ]]; then
    STEADY="$need $1"
    ((need >= $1)) || more=': those that are not needed end their leases first'
    say "$(stamp) $need needed, $1 there$more."
  fi
}

do_lines() { # do_lines CONTAINERS: what autoscale.py says on stdin; it has a list of its lines
  local verb what need='' left=$1
  while read -r verb what; do
    case $verb in
      need) need=$what ;;
      drain) say "$(stamp) $need needed, $left there: $what takes nothing new." ;;
      resume) say "$(stamp) $need needed: $what works again." ;;
      stop)
        left=$((left - 1))
        say "$(stamp) $need needed: ${what:0:12} has ended its leases and stops."
        run_quiet docker stop "$what" </dev/null && run_quiet docker rm "$what" </dev/null && put "CPU_WORKERS=$left"
        ;;
      scale)
        say "$(stamp) $need needed, $left there: starting $((what - left))."
        put "CPU_WORKERS=$what"
        compose_run up -d --no-recreate cpu-worker
        ;;
    esac
  done
}

stamp() { date +%H:%M:%S; }
