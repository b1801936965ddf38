#!/usr/bin/env bash
# Starts and stops a cluster. `./deploy-cluster.sh help` says how.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

usage() {
  cat <<'TEXT'
Usage: ./deploy-cluster.sh COMMAND [OPTIONS]

  local     run everything on this machine as plain processes; needs Python 3.11 or later and nothing else
              --port P       API on port P (default: 3000, or the next free one)
              --workers N    N CPU workers that share the cores (default: 1 with all cores)
              --once         run the two sample jobs, print one JSON object for each on stdout, stop
              --no-samples   start no sample job
  stop      stop the local cluster of this checkout; jobs and results are kept in .cluster
  status    say whether it runs, and where
  help      print this

Exit codes: 0 done; 1 failed; 2 wrong usage; 3 something must be installed first; 4 not ready in time;
            5 a local cluster of this checkout runs already; 6 the port is taken; 130 interrupted
TEXT
}

wrong() { # wrong WHAT: a usage error
  printf 'error: %s\nSee: ./deploy-cluster.sh help\n' "$*" >&2
  exit 2
}

number() { # number OPTION VALUE LOW HIGH
  if ! [[ "$2" =~ ^[1-9][0-9]{0,4}$ ]] || (($2 < $3 || $2 > $4)); then
    wrong "$1 needs a number from $3 to $4; got '$2'."
  fi
}

check_local_options() {
  while (($#)); do
    case $1 in
      --port) number --port "${2:-}" 1 65535 && shift ;;
      --workers) number --workers "${2:-}" 1 64 && shift ;;
      --once | --no-samples) ;;
      *) wrong "local has no option '$1'." ;;
    esac
    shift
  done
}

cmd_local() {
  check_local_options "$@"
  deploy/environment.sh local
  # Compiled kernels are kept between starts.
  export NUMBA_CACHE_DIR="${NUMBA_CACHE_DIR:-$PWD/.cluster/cache/numba}"
  exec .venv/bin/python -m deploy.local run "$@"
}

cmd_existing() { # stop and status need no installation: without .venv nothing runs
  [[ $# -eq 1 ]] || wrong "$1 takes no options."
  if [[ ! -x .venv/bin/python ]]; then
    printf 'No local cluster of this checkout runs.\n' >&2
    [[ $1 == stop ]]
    return
  fi
  exec .venv/bin/python -m deploy.local "$1"
}

main() {
  case ${1:-} in
    local) cmd_local "${@:2}" ;;
    stop | status) cmd_existing "$@" ;;
    help | -h | --help) usage ;;
    '') usage >&2 && exit 2 ;;
    *) wrong "there is no command '$1'; there are: local, stop, status, help." ;;
  esac
}

main "$@"
