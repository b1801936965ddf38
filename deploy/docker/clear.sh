# shellcheck shell=bash
# Sourced by deploy-cluster.sh. Implements the commands stop and cleanup.

docker_stop() {
  need_containers
  if [[ -z $PRETENDED ]] && ! any_running; then
    say "No containers of this checkout are running."
    return
  fi
  alone
  compose_run --profile '*' stop
  [[ -n $DRY ]] || say "Stopped. Jobs and results remain in Docker volumes. Start again: ./deploy-cluster.sh docker"
}

# -- cleanup ----------------------------------------------------------------------------------------------------------

docker_cleanup() { # docker_cleanup YES SECRETS
  need_docker
  read_config
  need_own_project
  alone
  list_doomed "$2" >"$WORK/doomed"
  if [[ -z $PRETENDED && ! -s $WORK/doomed ]]; then
    say "There is nothing to remove."
  else
    say "This deletes the following, with all jobs and results:"
    cat "$WORK/doomed" >&2
    say "To keep a copy, first run: ./deploy-cluster.sh backup FILE"
    sure "$1" "Delete everything listed?"
    # Without the profiles, containers of disabled profiles would remain.
    compose_run --profile '*' down --volumes --remove-orphans
    forget_context "$(address COORDINATOR_PORT 3000)"
    [[ -z $2 ]] || run rm -rf "$SECRETS"
    [[ -n $DRY ]] || say "Removed."
  fi
  ! has_local || say "The local cluster of this checkout was kept. To delete it: ./deploy-cluster.sh cleanup --local"
}

list_doomed() { # list_doomed SECRETS: print one line per resource to delete
  local mine
  [[ -z $PRETENDED ]] || printf "  containers, volumes and networks of the project %s\n" "$PROJECT"
  mine="label=$LABEL.project=$PROJECT"
  docker ps --all --filter "$mine" --format '  container {{.Names}} ({{.Status}})'
  docker volume ls --filter "$mine" --format '  volume {{.Name}}'
  docker network ls --filter "$mine" --format '  network {{.Name}}'
  [[ -z $1 || ! -d $SECRETS ]] || printf '  folder %s\n' "$SECRETS"
}
