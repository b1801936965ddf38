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
      join[!-]*) ;;
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
  local token=''
  check_host_options join "$@"
  check_invitation "$@"
  run deploy/environment.sh local
  [[ " $* " != *" --gpu "* ]] || ! nvidia-smi -L >/dev/null 2>&1 || run deploy/environment.sh gpu-worker
  export NUMBA_CACHE_DIR="${NUMBA_CACHE_DIR:-$CLUSTER_HOME/.cluster/cache/numba}"
  # printf is a shell builtin, so no list of processes contains the token.
  run_last .venv/bin/python -m deploy.local join "$@" < <(printf '%s\n' "$token")
}

check_invitation() { # check_invitation ARGUMENT...: check the invitation and read its token before packages are installed
  while (($#)); do
    case $1 in
      --name | --labels | --workers) shift ;;
      --*) ;;
      *:*/?*)
        read_token
        return
        ;;
      *) fail 2 "'$1' is not an invitation." "Copy the address HOST:PORT/FINGERPRINT that ./deploy-cluster.sh invite prints." ;;
    esac
    shift
  done
  [[ -e $DATA/joined/host.json ]] ||
    fail 2 "join needs an invitation." "Create one on the machine of the cluster: ./deploy-cluster.sh invite"
}

read_token() { # set `token` to a line of stdin, without showing it on a terminal
  [[ -z $DRY ]] || return 0
  [[ ! -t 0 ]] || printf 'Token of the invitation (not shown while you type): ' >&2
  read -r -s token || [[ -n $token ]] ||
    fail 2 "join reads the token of the invitation from stdin, but stdin is empty." \
      "Run the command in a terminal and paste the token, or pipe the token into the command."
  [[ ! -t 0 ]] || say
  [[ $token =~ ^tc_[a-z0-9]{10}_[A-Za-z0-9_-]{43}$ ]] ||
    fail 2 "this is not the token of an invitation." "Copy the line tc_... that ./deploy-cluster.sh invite prints."
}

cmd_leave() {
  check_host_options leave "$@"
  [[ -x .venv/bin/python ]] || fail 1 "this checkout has not joined a cluster."
  run_last .venv/bin/python -m deploy.local leave "$@"
}
