#!/usr/bin/env bash
# Start, stop and manage a cluster. Run `./deploy-cluster.sh help` for usage.
set -Eeuo pipefail
shopt -s inherit_errexit 2>/dev/null || true # requires bash 4.4; `local` also works with older versions
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

Local cluster: processes on this machine. Requires Python 3.11 or later, and Redis 7 if Python is newer than 3.13 or the
system is neither Linux nor macOS.
  local     start a cluster and keep it running until Ctrl-C. If CuPy is installed, each GPU gets a worker.
            GPU_ENABLED=true installs CuPy, and fails without a GPU.
              --port P       port of the API (default: 3000, or the next free port)
              --workers N    start N CPU workers that share the cores (default: 1)
              --no-runner    start no runner of programs (cluster run -- COMMAND). With a runner, programs run as your
                             user, and API calls need a token, which the cluster command of this folder finds
              --once         run the two sample jobs, print their results, and stop. With --json, or if stdout is not a
                             terminal, print each result as a JSON object
              --no-samples   do not submit the sample jobs at the first start

More machines for the local cluster, without Docker or Kubernetes. They connect to this machine (docs/hosts.md).
  invite    print a command with which one machine can join the cluster once
              --address A    name or address of this machine, as seen from the other machine
              --port P       HTTPS port for joined machines (default: 3443, or the next free port)
              --ttl T        validity of the invitation, such as 30m (default: 1h)
              --gpu, --runner  add these options to the printed command
              --labels L,M   labels of the host that joins, which tenants can require
              --close ID     revoke an unused invitation, named by its ID or its text
  join INVITATION  on the other machine: work for the cluster until Ctrl-C. Later, run join without an invitation to
              continue. join - reads the invitation from stdin, which hides it from lists of processes
              --name N       name of this machine in the cluster (default: its host name)
              --workers N    start N CPU workers that share the cores (default: 1; 0 for none)
              --gpu          also start a worker for each GPU
              --runner       also start a runner; anyone who can run programs on the cluster can then run them here
              --labels L,M   labels of the runner, which jobs can require
              --service      write a systemd unit that starts the workers at boot, and exit
  leave     revoke the tokens of this machine's workers and forget the cluster
              --anyway       also if the cluster is unreachable

Containers. Requires Docker Engine 20.10 or later with Compose 2.20 or later.
  docker [N [G]]  build and start N workers in total, G of them on GPUs: `docker 5 2` starts 3 CPU workers and 2 GPU
                  workers. Without numbers, uses the counts in .env (at first 1 and 0). Run the command again to update
                  a running cluster: coordinators and pages keep answering, and workers return their leases
              --runner       also start a runner of programs, now and at later starts; all API calls then require a token
  scale N         change the total number of workers to N; the number of GPU workers does not change
              --gpu G        number of GPU workers among them
  autoscale       start and stop CPU workers as jobs need them, until Ctrl-C. Workers finish their leases before they
                  stop. See docs/operations.md#workers-by-need
              --min N        minimum number of workers (default: AUTOSCALE_MIN, 1)
              --max M        maximum number of workers (default: AUTOSCALE_MAX, 10)
              --once         run one round and exit, for a timer
  report [FILE]   print versions, health, throughput, latencies, utilization, alerts and errors, without secrets
  backup FILE     write jobs, results, high-water marks and the audit log to a .tar.gz file
  restore FILE    replace the cluster's data by a backup, also after cleanup. If it fails, the data does not change. The
                  audit log's file is restored if it is missing, and never overwritten
              --yes          do not ask for confirmation, even if jobs are running

Kubernetes 1.25 or later. Requires kubectl 1.27 or later.
  kubernetes [N [G]]  start N workers in total, G of them on GPUs. Missing options keep their values of the last start.
                  Run the command again to update a running cluster, without failed requests or lost jobs
              --context C    kubectl context of the Kubernetes cluster (default: the current one)
              --namespace S  namespace (default: threads-cluster)
              --overlay O    dev, prod, or your own folder; see docs/kubernetes.md (default: dev)
              --registry R   prefix of the image names, such as registry.example/team
              --tag T        image tag (default: the version; with --load, the version and a digest of the image)
              --load         build the images, and push them to --registry or load them into this machine's node. Pods
                             with a changed image are replaced
  Afterwards, scale, report, backup, restore and the commands below apply to that cluster. Use --context or --namespace
  for another cluster on Kubernetes, and --docker for containers.

All clusters:
  status          show processes or containers, their health and addresses    --json: print one object on stdout
  logs [SERVICE]  print logs    -f: follow them; --docker, --local: choose one cluster if both exist
  stop            stop everything, but keep jobs and results (in .cluster, or in Docker volumes)
  cleanup         delete containers, networks and volumes with all jobs and results. Keeps backups, and the passwords in
                  ./secrets, which backups need
              --yes          do not ask for confirmation
              --secrets      also delete ./secrets
              --local        also delete the local cluster's data in .cluster, and its contexts
  help, --version

With --dry-run, every command prints the commands that it would run, and changes nothing. NO_COLOR=1 disables colors.
DEBUG=1 prints every step.

Exit codes: 0 success; 1 failure; 2 usage error or missing confirmation; 3 a dependency is missing; 4 not ready in time;
            5 a local cluster of this checkout is already running, or another command is changing the cluster;
            6 a port is in use; 130 interrupted. status returns 1 if nothing is running or something is unhealthy
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
      --once | --no-samples | --runner | --no-runner) ;;
      --json) json=yes ;;
      *) wrong "local has no option '$1'." ;;
    esac
    shift
  done
  [[ $json == no || $all == *" --once "* ]] || wrong "--json requires --once."
}

cmd_local() {
  check_local_options "$@"
  run deploy/environment.sh local
  # Without an NVIDIA driver nothing is installed, and deploy.local reports what is missing.
  [[ ${GPU_ENABLED:-} != true ]] || ! nvidia-smi -L >/dev/null 2>&1 || run deploy/environment.sh gpu-worker
  if [[ " $* " != *" --once "* ]]; then
    run deploy/pages.sh || say "The build of the web pages failed; the cluster starts without them."
    run deploy/documentation.sh || say "The build of the documentation failed; the cluster starts without it."
  fi
  # Keep compiled kernels between starts.
  export NUMBA_CACHE_DIR="${NUMBA_CACHE_DIR:-$PWD/.cluster/cache/numba}"
  run_last .venv/bin/python -m deploy.local run "$@"
}

local_runs() {
  [[ -x .venv/bin/python && -d .cluster ]] &&
    .venv/bin/python -c 'import sys; from deploy.local import commands; sys.exit(not commands.is_running())' 2>/dev/null
}

of_local() { # of_local stop|status: without .venv, no local cluster can be running
  if [[ ! -x .venv/bin/python ]]; then
    if [[ $1 == stop ]]; then
      say "No local cluster of this checkout is running."
    else
      say "No local cluster of this checkout is running. Start one: ./deploy-cluster.sh local"
    fi
    [[ $1 == stop ]]
    return
  fi
  if [[ $1 == stop ]]; then run .venv/bin/python -m deploy.local stop; else .venv/bin/python -m deploy.local status; fi
}

# -- the containers ---------------------------------------------------------------------------------------------------

docker_possible() { # true if this machine can run the Docker scripts
  [[ -f docker-compose.yml ]] && command -v docker >/dev/null && ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 404))
}

with_docker() { # with_docker FUNCTION ARGUMENT...: load the Docker scripts, then call the function
  if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 404)); then
    fail 3 "this command needs bash 4.4 or later; the current version is $BASH_VERSION." "macOS: brew install bash"
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

WHERE=''           # docker or kubernetes, if the user named one
CONTEXT=''         # kubectl context
NAMESPACE_GIVEN='' # namespace that the user named

on_kubernetes() { [[ $WHERE == kubernetes || ($WHERE != docker && -f .kubernetes) ]]; }

with_kubernetes() { # with_kubernetes FUNCTION ARGUMENT...
  local part
  ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 404)) ||
    fail 3 "this command needs bash 4.4 or later; the current version is $BASH_VERSION." "macOS: brew install bash"
  for part in run backup_file kubernetes/{target,render,preflight,images,runner,start,show,clear,backup}; do
    # shellcheck source=/dev/null
    source "deploy/$part.sh"
  done
  begin
  "$@"
}

# -- any kind of cluster ----------------------------------------------------------------------------------------------

cmd_stop() {
  (($# == 0)) || wrong "stop accepts no options."
  if docker_possible; then with_docker stop_all; else of_local stop; fi
}

cmd_status() {
  local local_json
  [[ $# -eq 0 || ($# -eq 1 && $1 == --json) ]] || wrong "status accepts only the option --json."
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

local_status_json() { # one JSON object, or null if no local cluster is running
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

anywhere() { # anywhere COMMAND ARGUMENT...: run a command that does not concern Kubernetes
  case ${1:-} in
    local) cmd_local "${@:2}" ;;
    invite) cmd_invite "${@:2}" ;;
    join) cmd_join "${@:2}" ;;
    leave) cmd_leave "${@:2}" ;;
    status) cmd_status "${@:2}" ;;
    stop) cmd_stop "${@:2}" ;;
    docker | scale | autoscale | logs | cleanup | report | backup | restore) with_docker "cmd_$1" "${@:2}" ;;
    help) usage ;;
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
    # shellcheck disable=SC2034  # used by files sourced later
    case $word in
      -h | --help) usage && exit ;;
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
