#!/usr/bin/env bash
# Starts and stops a cluster. `./deploy-cluster.sh help` says how.
set -Eeuo pipefail
shopt -s inherit_errexit 2>/dev/null || true # bash 4.4; `local` also runs on older ones
[[ -z ${DEBUG:-} ]] || set -x
# shellcheck disable=SC2034  # report.sh and backup.sh take paths as the user sees them
CALLED_FROM=$PWD
[[ ${BASH_SOURCE[0]} != */* ]] || cd "${BASH_SOURCE[0]%/*}/"
# shellcheck source=deploy/docker/talk.sh
source deploy/docker/talk.sh
# shellcheck source=deploy/local/hosts.sh
source deploy/local/hosts.sh

usage() {
  cat <<'TEXT'
Usage: ./deploy-cluster.sh COMMAND [OPTIONS]

On this machine as plain processes; needs Python 3.11 or later (above 3.13, or elsewhere than on Linux and macOS: Redis 7):
  local     start it and stay until Ctrl-C; with a GPU worker for each GPU where CuPy is installed, or with
            GPU_ENABLED=true, which installs it and fails without a GPU
              --port P       API on port P (default: 3000, or the next free one)
              --workers N    N CPU workers that share the cores (default: 1 with all cores)
              --runner       and a runner of programs (cluster run -- COMMAND); every call of the API then needs a token,
                             which the cluster command of this folder finds. Programs may do what you may: docs/operations.md
              --once         run the two sample jobs, print their figures, and stop; where stdout is no terminal, or with
                             --json, one JSON object for each
              --no-samples   start no sample job

More machines for that cluster, without Docker or Kubernetes; they reach this one, nothing reaches them (docs/hosts.md):
  invite    print the command with which a machine joins, once
              --address A    name or address of this machine as the other one reaches it
              --port P       serve HTTPS there on port P (default: 3443, or the next free one)
              --ttl T        how long the invitation counts, such as 30m (default: 1h)
              --gpu, --runner  put these options into the command
              --labels L,M   labels of the host that joins, which tenants may require of all its workers
              --close ID     end an invitation that nobody has used, by its id or the invitation itself
  join INVITATION  on the other machine: work for that cluster until Ctrl-C; later, join alone goes on; join - reads it
              from stdin, so that no list of processes shows it
              --name N       name of this machine in the cluster (default: its own)
              --workers N    N CPU workers that share the cores (default: 1; 0: none)
              --gpu          and a GPU worker for each GPU
              --runner       and a runner of programs; whoever may run programs on that cluster runs them here
              --labels L,M   what that runner says it has, for jobs that ask for it
              --service      write a unit of systemd that does it at each start, and end
  leave     end the tokens of this machine's workers and forget the cluster    --anyway: also when it is not reached

As containers; needs Docker Engine 20.10 or later with Compose 2.20 or later:
  docker [N [G]]  build and start N workers in all, G of them on GPUs: `docker 5 2` is 3 CPU workers and 2 GPU workers.
                  Without numbers: as many as .env says, at first 1 and 0. Run it again after a change to update:
                  coordinators and pages keep answering, and workers return the leases they hold
              --runner       and a runner of programs, now and at later starts; every call of the API then needs a token
  scale N         change to N workers in all, with as many GPU workers as before; nothing else changes
              --gpu G        G of them on GPUs
  autoscale       start CPU workers as the work needs them, and stop those that it does not, after they ended what they
                  hold; until Ctrl-C. docs/operations.md#workers-by-need says how many are needed
              --min N        never fewer than N (default: AUTOSCALE_MIN, 1)
              --max M        never more than M (default: AUTOSCALE_MAX, 10)
              --once         one look, for a timer
  report [FILE]   versions, health, throughput, latencies, utilisation, alerts and errors, without secrets
  backup FILE     write jobs, results, marks and the audit log into one .tar.gz
  restore FILE    replace the cluster's data by a backup's, also after cleanup. If that fails, the data stays as it was.
                  The file of the audit log is put back where it is missing, and never overwritten
              --yes          ask nothing, even when jobs run

On Kubernetes 1.25 or later; needs kubectl 1.27 or later:
  kubernetes [N [G]]  start N workers in all, G of them on GPUs. Without numbers, and for what is not given: as the last
                  time. Run it again after a change to update: requests are answered meanwhile, and no job is lost
              --context C    the cluster that kubectl knows by this name (default: the current one)
              --namespace S  in this namespace (default: threads-cluster)
              --overlay O    dev, prod, or a folder of your own; docs/kubernetes.md (default: dev)
              --registry R   prefix of the images' names, such as registry.example/team
              --tag T        of the images (default: the version; with --load, the version and a digest of each image's
                             content)
              --load         build the images and push them to --registry, or bring them into this machine's node; pods
                             whose image has changed are replaced
  scale, report, backup, restore and the commands below act on that cluster afterwards; on another with --context or
  --namespace, on containers with --docker

Either:
  status          what runs, its health, its addresses       --json: one object on stdout
  logs [SERVICE]  print logs         -f: follow; --docker, --local: which cluster, when there are both
  stop            stop what runs; jobs and results are kept (in .cluster, or in Docker's volumes)
  cleanup         remove containers, networks and volumes, with every job and result in them. Passwords stay in secrets,
                  so that a backup still fits; backups stay
              --yes          ask nothing
              --secrets      remove ./secrets too
              --local        remove the local cluster's data in .cluster too
  help, --version

With --dry-run, every command prints what it would run and changes nothing. NO_COLOR=1: no colours. DEBUG=1: every step.

Exit codes: 0 done; 1 failed; 2 wrong usage, or a question that got no answer; 3 something must be installed first;
            4 not ready in time; 5 a local cluster of this checkout runs already, or another command is working
            on this checkout; 6 a port is taken; 130 interrupted. status: 1 when nothing runs or something is not healthy
TEXT
}

version() {
  local text
  read -r text <jobs/VERSION
  printf '%s\n' "$text"
}

# -- the local cluster ------------------------------------------------------------------------------------------------

check_local_options() {
  local json=no all=" $* "
  while (($#)); do
    case $1 in
      --port) number --port "${2:-}" 1 65535 && shift ;;
      --workers) number --workers "${2:-}" 1 64 && shift ;;
      --once | --no-samples | --runner) ;;
      --json) json=yes ;;
      *) wrong "local has no option '$1'." ;;
    esac
    shift
  done
  [[ $json == no || $all == *" --once "* ]] || wrong "--json goes with --once."
}

cmd_local() {
  check_local_options "$@"
  run deploy/environment.sh local
  # Without a driver nothing is installed: deploy.local then says what is missing.
  [[ ${GPU_ENABLED:-} != true ]] || ! nvidia-smi -L >/dev/null 2>&1 || run deploy/environment.sh gpu-worker
  if [[ " $* " != *" --once "* ]]; then
    run deploy/pages.sh || say "The pages were not built; the cluster starts all the same."
    run deploy/documentation.sh || say "The documentation was not built; the cluster starts all the same."
  fi
  # Compiled kernels are kept between starts.
  export NUMBA_CACHE_DIR="${NUMBA_CACHE_DIR:-$PWD/.cluster/cache/numba}"
  run_last .venv/bin/python -m deploy.local run "$@"
}

local_runs() {
  [[ -x .venv/bin/python && -d .cluster ]] &&
    .venv/bin/python -c 'import sys; from deploy.local import commands; sys.exit(not commands.running())' 2>/dev/null
}

of_local() { # of_local stop|status: needs no installation, since without .venv nothing runs
  if [[ ! -x .venv/bin/python ]]; then
    if [[ $1 == stop ]]; then
      say "No local cluster of this checkout runs."
    else
      say "No local cluster of this checkout runs. Start one: ./deploy-cluster.sh local"
    fi
    [[ $1 == stop ]]
    return
  fi
  if [[ $1 == stop ]]; then run .venv/bin/python -m deploy.local stop; else .venv/bin/python -m deploy.local status; fi
}

# -- the containers ---------------------------------------------------------------------------------------------------

docker_possible() { # a checkout without containers never asks Docker
  [[ -f docker-compose.yml ]] && command -v docker >/dev/null && ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 404))
}

with_docker() { # with_docker FUNCTION ARGUMENT...: after loading what knows Docker
  if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 404)); then
    fail 3 "this needs bash 4.4 or later; this is $BASH_VERSION." "macOS: brew install bash"
  fi
  local part
  for part in run backup_file docker/{env_file,engine,containers,trouble,pool,runner,start,update,autoscale,show,clear,report,backup}; do
    # shellcheck source=/dev/null
    source "deploy/$part.sh"
  done
  begin
  "$@"
}

# -- Kubernetes -------------------------------------------------------------------------------------------------------

WHERE=''           # docker or kubernetes, where the user said so
CONTEXT=''         # of kubectl
NAMESPACE_GIVEN='' # by the user

on_kubernetes() { [[ $WHERE == kubernetes || ($WHERE != docker && -f .kubernetes) ]]; }

with_kubernetes() { # with_kubernetes FUNCTION ARGUMENT...
  local part
  ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 404)) ||
    fail 3 "this needs bash 4.4 or later; this is $BASH_VERSION." "macOS: brew install bash"
  for part in run backup_file kubernetes/{target,render,preflight,images,runner,start,show,clear,backup}; do
    # shellcheck source=/dev/null
    source "deploy/$part.sh"
  done
  begin
  "$@"
}

# -- either -----------------------------------------------------------------------------------------------------------

cmd_stop() {
  (($# == 0)) || wrong "stop takes no options."
  if docker_possible; then with_docker stop_all; else of_local stop; fi
}

cmd_status() {
  local local_json
  [[ $# -eq 0 || ($# -eq 1 && $1 == --json) ]] || wrong "status takes no options but --json."
  if docker_possible; then
    with_docker status_of_all "$@"
  elif (($#)); then
    local_json=$(local_status_json)
    printf '{"docker":null,"local":%s}\n' "$local_json"
    [[ $local_json != null ]]
  else
    of_local status
  fi
}

local_status_json() { # one object, or null when it does not run
  local url answer=null
  if ! local_runs; then
    printf 'null'
    return
  fi
  url=$(cat .cluster/url 2>/dev/null || true)
  [[ -z $url ]] || answer=$(CLUSTER_URL=$url .venv/bin/cluster status --json 2>/dev/null) || answer=null
  printf '{"url":"%s","api":%s}' "$url" "${answer:-null}"
}

dispatch() {
  case ${1:-} in
    kubernetes) with_kubernetes cmd_kubernetes "${@:2}" ;;
    scale | autoscale | status | logs | stop | cleanup | report | backup | restore)
      if on_kubernetes && [[ " $* " != *" --local "* ]]; then with_kubernetes "kube_$1" "${@:2}"; else anywhere "$@"; fi ;;
    *) anywhere "$@" ;;
  esac
}

anywhere() { # anywhere COMMAND ARGUMENT...: that is not about Kubernetes
  case ${1:-} in
    local) cmd_local "${@:2}" ;;
    invite) cmd_invite "${@:2}" ;;
    join) cmd_join "${@:2}" ;;
    leave) cmd_leave "${@:2}" ;;
    status) cmd_status "${@:2}" ;;
    stop) cmd_stop "${@:2}" ;;
    docker | scale | autoscale | logs | cleanup | report | backup | restore) with_docker "cmd_$1" "${@:2}" ;;
    help | -h | --help) usage ;;
    --version) version ;;
    '') usage >&2 && exit 2 ;;
    *) wrong "there is no command '$1'; there are: local, invite, join, leave, docker, kubernetes, scale, autoscale, status, logs, stop, cleanup, report, backup, restore, help." ;;
  esac
}

main() {
  local left=$# word
  for (( ; left; left--)); do
    word=$1
    shift
    # shellcheck disable=SC2034  # used by what is loaded later
    case $word in
      --dry-run) DRY=yes ;;
      --kubernetes) WHERE=kubernetes ;;
      --docker)
        WHERE=docker
        [[ " $* " != *" logs "* ]] || set -- "$@" --docker
        ;;
      --context | --namespace)
        ((left > 1)) || wrong "$word needs a name."
        WHERE=kubernetes
        if [[ $word == --context ]]; then CONTEXT=$1; else NAMESPACE_GIVEN=$1; fi
        shift
        left=$((left - 1))
        ;;
      *) set -- "$@" "$word" ;;
    esac
  done
  dispatch "$@"
}

main "$@"
