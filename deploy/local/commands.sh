# shellcheck shell=bash
# Sourced by deploy-cluster.sh. Implements the commands for a local cluster. This file also works with bash 3.2.

check_local_options() {
  local json=no all=" $* "
  while (($#)); do
    case $1 in
      --port) number --port "${2:-}" 1 65535 && shift ;;
      --workers) number --workers "${2:-}" 1 64 && shift ;;
      --bundle) [[ -n ${2:-} ]] || wrong "--bundle needs a file that the command bundle wrote." && shift ;;
      --once | --no-samples | --runner | --no-runner | --tracing) ;;
      --json) json=yes ;;
      *) wrong "local has no option '$1'." ;;
    esac
    shift
  done
  [[ $json == no || $all == *" --once "* ]] || wrong "--json requires --once."
  [[ -z $SCOPE || $all != *" --once "* ]] || wrong "--once cannot be combined with --$SCOPE."
}

SCOPE='' # manager of systemd units that runs the local cluster: system or user
readonly SYSTEM_USER=threads-cluster

use_system_cluster() { # use_system_cluster COMMAND ARGUMENT...: use the data of the system's cluster, as its user
  CLUSTER_HOME=/var/lib/$SYSTEM_USER
  name_state
  [[ -z $DRY ]] || return 0
  [[ $EUID == 0 ]] || fail 2 "--system needs root." "Run the command with sudo, or use --user to run the cluster as your user."
  [[ ${1:-} != local && ${1:-} != stop ]] || return 0
  [[ -d $CLUSTER_HOME ]] || fail 1 "no cluster was started with --system." "Start one: ./deploy-cluster.sh local --system"
  # Its user may be unable to read the code or the caller's files, so this process keeps root's access to files.
  exec setpriv --reuid "$SYSTEM_USER" --regid "$SYSTEM_USER" --init-groups --inh-caps +dac_override \
    --ambient-caps +dac_override env HOME="$CLUSTER_HOME" ./deploy-cluster.sh --local "$@"
}

create_system_user() { # create the user that runs the system's cluster, and the folder with its data
  run systemd-sysusers --inline "u $SYSTEM_USER - \"Threads Cluster\" $CLUSTER_HOME"
  run install -d -m 0700 -o "$SYSTEM_USER" -g "$SYSTEM_USER" "$CLUSTER_HOME"
}

check_scope() { # check_scope: fail if systemd cannot run the cluster as the user wants
  [[ -n $SCOPE && -z $DRY ]] || return 0
  [[ -d /run/systemd/system ]] ||
    fail 3 "--$SCOPE needs systemd, but systemd does not manage this machine." \
      "Use containers, which the Docker engine restarts (./deploy-cluster.sh docker), or start the cluster at boot by other means."
}

as_owner() { # as_owner COMMAND...: with --system, run a command as the owner of this folder, who can then change its files
  if [[ $SCOPE == system && ! -O . && -z ${CLUSTER_BUNDLE:-} ]]; then set -- runuser -u "$(stat -c %U .)" -- env -u HOME "$@"; fi
  run "$@"
}

cmd_local() {
  check_local_options "$@"
  check_scope
  [[ $SCOPE != system ]] || create_system_user
  install_bundle "$@"
  set -- ${OTHERS[@]+"${OTHERS[@]}"}
  as_owner deploy/environment.sh local
  # Without an NVIDIA driver nothing is installed, and deploy.local reports what is missing.
  [[ ${GPU_ENABLED:-} != true ]] || ! nvidia-smi -L >/dev/null 2>&1 || as_owner deploy/environment.sh gpu-worker
  [[ " $* " != *" --tracing "* ]] || as_owner deploy/environment.sh tracing
  if [[ " $* " != *" --once "* ]]; then
    as_owner deploy/pages.sh || say "The build of the web pages failed; the cluster starts without them."
    as_owner deploy/documentation.sh || say "The build of the documentation failed; the cluster starts without it."
  fi
  if [[ -n $SCOPE ]]; then
    run_last .venv/bin/python -m deploy.local start-unit "$SCOPE" "$@"
    return
  fi
  # Keep compiled kernels between starts.
  export NUMBA_CACHE_DIR="${NUMBA_CACHE_DIR:-$CLUSTER_HOME/.cluster/cache/numba}"
  run_last .venv/bin/python -m deploy.local run "$@"
}

local_verb() { # local_verb COMMAND ARGUMENT...: run a command of deploy.local; fail without .venv
  [[ -n $DRY || -x .venv/bin/python ]] ||
    fail 1 "no local cluster of this checkout is running." "Start one: ./deploy-cluster.sh local"
  run_last .venv/bin/python -m deploy.local "$@"
}

local_scale() { # scale N
  [[ $# -eq 1 ]] || wrong "scale of a local cluster needs one number of CPU workers, such as scale 2, and no options."
  number scale "$1" 1 64
  local_verb scale "$1"
}

cmd_metrics() { # metrics --config
  [[ $* == --config ]] || wrong "metrics needs the option --config. To print metrics: cluster metrics"
  local_verb metrics
}

local_update() { # update [--check] [--drain SECONDS] [--from SOURCE | SOURCE]
  local source='' options=''
  while (($#)); do
    case $1 in
      --check) options="$options --check" ;;
      --drain) number --drain "${2:-}" 0 86400 && options="$options --drain $2" && shift ;;
      --from) [[ $# -gt 1 ]] || wrong "--from needs a file, an https:// address or threads-cluster==VERSION." ;;
      -*) wrong "update has no option '$1'." ;;
      *) if [[ -z $source ]]; then source=$1; else wrong "update accepts only one file."; fi ;;
    esac
    shift
  done
  [[ -z $source || $source == /* || ! -e $CALLED_FROM/$source ]] || source=$CALLED_FROM/$source
  # shellcheck disable=SC2086
  local_verb update $options ${source:+"$source"}
}

local_rollback() { # rollback [--drain SECONDS]
  [[ $# -eq 0 || ($# -eq 2 && $1 == --drain) ]] || wrong "rollback accepts only the option --drain SECONDS."
  (($# == 0)) || number --drain "$2" 0 86400
  local_verb rollback "$@"
}

local_report() { # report [FILE]
  load local/report
  report_local_cluster "$@"
}

local_backup() { # backup FILE
  load local/backup
  backup_local_cluster "$@"
}

local_restore() { # restore FILE [--yes]
  load local/backup
  restore_local_cluster "$@"
}

need_environment() { # fail if this checkout cannot have a local cluster with data
  [[ -x .venv/bin/python ]] || fail 1 "this checkout has no local cluster." "Start one: ./deploy-cluster.sh local"
}

local_autoscale() {
  fail 1 "a local cluster has no autoscaler: its workers already use all cores, and idle workers cost nothing." \
    "Change the number of workers: ./deploy-cluster.sh scale N    Use containers: ./deploy-cluster.sh docker"
}

# -- status, stop and logs --------------------------------------------------------------------------------------------

local_status() {
  if [[ -x .venv/bin/python ]]; then
    .venv/bin/python -m deploy.local status
  else
    say "No local cluster of this checkout is running. Start one: ./deploy-cluster.sh local"
    return 1
  fi
}

local_json() { # print one JSON object, or null if no local cluster is running
  local url answer=null
  if ! runs_local; then
    printf 'null'
    return
  fi
  url=$(cat "$DATA/url" 2>/dev/null || true)
  [[ -z $url ]] || answer=$(CLUSTER_URL=$url .venv/bin/cluster status --json 2>/dev/null) || answer=null
  printf '{"url":"%s","api":%s}' "$url" "${answer:-null}"
}

local_stop() { # without .venv, no local cluster can be running
  if [[ -x .venv/bin/python ]]; then
    end_said
    check_scope
    if [[ -n $SCOPE ]]; then set -- stop-unit "$SCOPE"; else set -- stop; fi
    run .venv/bin/python -m deploy.local "$@"
  else
    say "No local cluster of this checkout is running."
  fi
}

local_logs() { # local_logs PROGRAM FOLLOW: print the last lines of all logs, or of the log of a program
  local files=("$DATA"/logs/*.log) file=$DATA/logs/$1.log
  [[ -f ${files[0]} ]] || fail 1 "this checkout has not started a cluster yet." \
    "Start one: ./deploy-cluster.sh local, docker or kubernetes" \
    "For a cluster on Kubernetes that another checkout started: ./deploy-cluster.sh logs --context NAME"
  if [[ -n $1 && ! -f $file ]]; then
    wrong "program '$1' has no log; the programs with logs are: $(basename -s .log "${files[@]}" | paste -sd ' ' -)."
  fi
  [[ -z $1 ]] || files=("$file")
  end_said
  # shellcheck disable=SC2086
  run tail -n 200 ${2:+-F} "${files[@]}"
}

# -- cleanup ----------------------------------------------------------------------------------------------------------

local_cleanup() { # local_cleanup YES SECRETS
  check_local_cleanup
  if [[ ! -d $DATA && (-z $2 || ! -d $SECRETS) ]]; then
    say "There is nothing to remove."
  else
    say "This deletes the following, with all jobs and results of the local cluster:"
    if [[ -L $DATA ]]; then
      say "  link $DATA, but not the folder to which it points: $(readlink "$DATA")"
    else
      say "  folder $DATA, which also contains compiled kernels and temporary files"
    fi
    say "  contexts of this checkout, which 'cluster context list' shows"
    [[ -z $2 || ! -d $SECRETS ]] || say "  folder $SECRETS"
    say "To keep a copy, first run: ./deploy-cluster.sh backup FILE"
    sure "$1" "Delete everything listed?"
    delete_local_cluster "$2"
    [[ -n $DRY ]] || say "Removed."
  fi
  tell_kept
}

check_local_cleanup() { # fail if the cluster is running, or if tokens would remain valid
  ! runs_local || fail 5 "the local cluster of this checkout is running." "First stop it: ./deploy-cluster.sh stop"
  [[ ! -e $DATA/joined/host.json ]] ||
    fail 1 "this checkout has joined the cluster of another machine, which issued tokens to it." \
      "First revoke them: ./deploy-cluster.sh leave"
}

delete_local_cluster() { # delete_local_cluster SECRETS
  if [[ -x .venv/bin/python ]]; then
    run .venv/bin/python -c 'from deploy.local import user_contexts; user_contexts.delete()' || true
  fi
  # Programs can create folders without write permission, and rm cannot delete their contents.
  [[ ! -d $DATA || -L $DATA ]] || run chmod -R u+rwX "$DATA" 2>/dev/null || true
  run rm -rf "$DATA"
  [[ -z $1 ]] || run rm -rf "$SECRETS"
}

tell_kept() { # print the installed and built folders that remain
  local folder kept=''
  if [[ -n $INSTALLED ]]; then
    say "The server was kept, because the next start uses it. To delete it: $(quoted rm -rf "$CLUSTER_HOME/releases")"
    return
  fi
  for folder in .venv web/node_modules web/dist; do [[ ! -d $folder ]] || kept="$kept $folder"; done
  [[ -z $kept ]] || say "These folders were kept, because the next start uses them. To delete them: rm -rf$kept"
  [[ -z $kept ]] || say "The __pycache__ folders, which contain compiled Python code, were kept, too."
}
