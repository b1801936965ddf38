# shellcheck shell=bash
# Sourced by deploy-cluster.sh. Implements the commands stop and cleanup.

stop_all() { # stop everything that this checkout is running
  local stopped=''
  find_project
  if [[ $STATE == ours ]] && any_running; then
    alone
    compose_run --profile '*' stop
    [[ -n $DRY ]] || say "Stopped. Jobs and results remain in Docker volumes. Start again: ./deploy-cluster.sh docker"
    stopped=yes
  fi
  [[ $STATE != forbidden || ! -f secrets/redis_password ]] || no_engine "permission denied"
  about_other
  if [[ -z $stopped ]] || local_runs; then
    end_said
    of_local stop
  fi
}

# -- cleanup ----------------------------------------------------------------------------------------------------------

cmd_cleanup() { # cleanup [--yes] [--secrets] [--local]
  local yes='' keys='' here='' word
  for word in "$@"; do
    case $word in
      --yes) yes=yes ;;
      --secrets) keys=yes ;;
      --local) here=yes ;;
      *) wrong "cleanup has no option '$word'." ;;
    esac
  done
  [[ -z $here ]] || docker_possible || [[ ! -d .cluster ]] || clean_local_only "$yes"
  need_docker
  read_config
  need_own_project
  alone
  [[ -z $here ]] || ! local_runs || fail 5 "the local cluster of this checkout is running." "First stop it: ./deploy-cluster.sh stop"
  list_doomed "$keys" "$here" >"$WORK/doomed"
  if [[ ! -s $WORK/doomed ]]; then
    say "There is nothing to remove."
    return
  fi
  say "This deletes the following, with all jobs and results:"
  cat "$WORK/doomed" >&2
  say "To keep a copy, first run: ./deploy-cluster.sh backup FILE"
  sure "$yes" "Delete everything listed?"
  clean_up "$keys" "$here"
}

list_doomed() { # list_doomed SECRETS LOCAL: print one line per resource to delete
  local mine
  mine="label=$LABEL.project=$PROJECT"
  docker ps --all --filter "$mine" --format '  container {{.Names}} ({{.Status}})'
  docker volume ls --filter "$mine" --format '  volume {{.Name}}'
  docker network ls --filter "$mine" --format '  network {{.Name}}'
  [[ -z $1 || ! -d secrets ]] || printf '  folder secrets\n'
  [[ -z $2 || ! -d .cluster ]] || printf '  folder .cluster\n'
}

clean_up() { # clean_up SECRETS LOCAL
  # Without the profiles, containers of disabled profiles would remain.
  compose_run --profile '*' down --volumes --remove-orphans
  [[ -z $1 ]] || run rm -rf secrets
  [[ -z $2 ]] || remove_local
  [[ -n $DRY ]] || say "Removed."
}

clean_local_only() { # clean_local_only YES: cleanup on a machine without Docker
  ! local_runs || fail 5 "the local cluster of this checkout is running." "First stop it: ./deploy-cluster.sh stop"
  sure "$1" "Delete .cluster with all jobs and results of the local cluster?"
  remove_local
  exit 0
}

remove_local() { # remove_local: delete the local cluster's data, and the user's contexts for it
  [[ ! -x .venv/bin/python ]] ||
    run .venv/bin/python -c 'from deploy.local import user_contexts; user_contexts.delete()' || true
  run rm -rf .cluster
}
