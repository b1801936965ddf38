# shellcheck shell=bash
# Sourced by deploy-cluster.sh. Implements the commands that add machines to the local cluster.

check_host_options() { # check_host_options COMMAND ARGUMENT...
  local command=$1
  shift
  while (($#)); do
    case $command$1 in
      invite--address | invite--ttl | invite--close | invite--labels | join--name | join--labels)
        [[ -n ${2:-} && ${2:-} != -* ]] || wrong "$1 needs a value."
        shift
        ;;
      invite--port) number --port "${2:-}" 1 65535 && shift ;;
      join--workers) number --workers "${2:-}" 0 64 && shift ;;
      invite--gpu | invite--runner | join--gpu | join--runner | join--service | leave--anyway) ;;
      join[!-]* | join-) ;;
      *) wrong "$command has no option '$1'." ;;
    esac
    shift
  done
}

cmd_invite() {
  check_host_options invite "$@"
  [[ -x .venv/bin/python ]] || fail 1 "no local cluster of this checkout is running. Start one: ./deploy-cluster.sh local"
  run_last .venv/bin/python -m deploy.local invite "$@"
}

cmd_join() {
  check_host_options join "$@"
  check_invitation "$@"
  run deploy/environment.sh local
  [[ " $* " != *" --gpu "* ]] || ! nvidia-smi -L >/dev/null 2>&1 || run deploy/environment.sh gpu-worker
  export NUMBA_CACHE_DIR="${NUMBA_CACHE_DIR:-$CLUSTER_HOME/.cluster/cache/numba}"
  run_last .venv/bin/python -m deploy.local join "$@"
}

check_invitation() { # check_invitation ARGUMENT...: check the arguments of join before packages are installed
  while (($#)); do
    case $1 in
      --name | --labels | --workers) shift ;;
      --*) ;;
      - | *:*/*/tc_*) return ;;
      *) fail 2 "this is not an invitation." "Copy the line HOST:PORT/FINGERPRINT/TOKEN that ./deploy-cluster.sh invite prints." ;;
    esac
    shift
  done
  [[ -e $DATA/joined/host.json ]] ||
    fail 2 "join needs an invitation." "Create one on the machine of the cluster: ./deploy-cluster.sh invite"
}

cmd_leave() {
  check_host_options leave "$@"
  [[ -x .venv/bin/python ]] || fail 1 "this checkout has not joined a cluster."
  run_last .venv/bin/python -m deploy.local leave "$@"
}
