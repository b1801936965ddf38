#!/usr/bin/env bash
# Start, stop and manage a cluster. Run `./deploy-cluster.sh help` for usage.
set -Eeuo pipefail
shopt -s inherit_errexit 2>/dev/null || true # requires bash 4.4; `local` also works with older versions
[[ -z ${DEBUG:-} ]] || set -x
# shellcheck disable=SC2034  # report.sh and backup.sh take paths as the user sees them
CALLED_FROM=$PWD
# A link to the current release can change while its processes are running.
[[ ${BASH_SOURCE[0]} != */* ]] || cd -P "${BASH_SOURCE[0]%/*}/"
# shellcheck source=deploy/state.sh
source deploy/state.sh
# shellcheck source=deploy/docker/talk.sh
source deploy/docker/talk.sh
# shellcheck source=deploy/choice.sh
source deploy/choice.sh
# shellcheck source=deploy/local/commands.sh
source deploy/local/commands.sh
# shellcheck source=deploy/local/bundle.sh
source deploy/local/bundle.sh
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
              --tracing      install the packages for traces, and send the spans of jobs to OTEL_EXPORTER_OTLP_ENDPOINT
                             (default: http://127.0.0.1:4318)
              --user         let systemd start the cluster now and whenever this machine boots, as your user
              --system       the same as the user threads-cluster, with its data in /var/lib/threads-cluster. Needs root.
                             Add --system to every other command for this cluster (docs/systemd.md)
              --bundle FILE  install all packages from a bundle, without a network
  bundle FILE  write an archive with all packages of a cluster, for machines without a network (docs/air-gapped.md)
              --platform P,P platforms: linux-x86_64, linux-aarch64, macos-arm64 (default: this one)
              --python V,V   versions of Python: 3.11, 3.12, 3.13 (default: this one)
              --engine E,E   also packages of engines for language models, such as llamacpp
              --gpu          also packages of GPU workers
  metrics --config  print a configuration with which Prometheus monitors the running cluster (docs/monitoring.md)

More machines for the local cluster, without Docker or Kubernetes. They connect to this machine (docs/hosts.md).
  invite    print a line and a token, with which one machine without a checkout can join the cluster once
              --address A    name or address of this machine, as seen from the other machine
              --port P       HTTPS port for joined machines (default: 3443, or the next free port)
              --ttl T        validity of the invitation, such as 30m (default: 1h)
              --gpu, --runner  add these options to the printed line
              --labels L,M   labels of the host that joins, which tenants can require
              --close ID     revoke an unused invitation, named by its ID or its text
  join HOST:PORT/FINGERPRINT  on the other machine, in a checkout: work for the cluster until Ctrl-C. Reads the token
              of the invitation from stdin. Later, run join without arguments to continue
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
              --require-gpu  fail if this machine has no GPU, instead of starting only CPU workers
  autoscale       start and stop CPU workers as jobs need them, until Ctrl-C. Workers finish their leases before they
                  stop. See docs/operations.md#workers-by-need
              --min N        minimum number of workers (default: AUTOSCALE_MIN, 1)
              --max M        maximum number of workers (default: AUTOSCALE_MAX, 10)
              --once         run one round and exit, for a timer

Kubernetes 1.27 or later. Requires kubectl 1.27 or later.
  kubernetes [N [G]]  start N workers in total, G of them on GPUs. Missing options keep their values of the last start.
                  Run the command again to update a running cluster, without failed requests or lost jobs
              --context C    kubectl context of the Kubernetes cluster (default: the current one)
              --namespace S  namespace (default: threads-cluster)
              --overlay O    dev, prod, or your own folder; see docs/kubernetes.md (default: dev)
              --registry R   prefix of the image names, such as registry.example/team
              --tag T        image tag (default: the version; with --load, the version and a digest of the image)
              --load         build the images, and push them to --registry or load them into this machine's node. Pods
                             with a changed image are replaced
              --manifests F  also write the manifests to the file F, with their passwords. With --dry-run, this needs
                             kubectl, but no Kubernetes cluster

All clusters. A command applies to the cluster of this checkout, or to the running one if the checkout has several.
  --local, --docker, --kubernetes  choose the cluster of this kind. --context and --namespace choose one on Kubernetes
  scale N         change the total number of workers to N; the number of GPU workers does not change. In a local
                  cluster, change the number of CPU workers to N until the next start
              --gpu G        number of GPU workers among them
  update [WHEEL]  restart the programs of a running local cluster with a new release, one after the other: with the code
                  of this checkout, or in an installation with a file, an https:// address or threads-cluster==VERSION.
                  No job is lost. If the update fails or is interrupted, run the same command again
              --check        only print the versions, and whether and how the release can replace the running one
              --drain S      seconds in which programs can end before their runner stops (default: 60)
  rollback        return to the release before, if it can read the data
  report [FILE]   print versions, health, throughput, latencies, utilization, alerts and errors, without secrets
  backup FILE     write jobs, results, high-water marks and the audit log to a .tar.gz file. All kinds of clusters use
                  the same format
  restore FILE    replace the cluster's data with a backup, also after cleanup. If it fails, the data does not change.
                  The audit log's file is restored if it is missing, and never overwritten
              --yes          do not ask for confirmation, even if jobs are running
  status          show processes or containers, their health and addresses
              --json         print one object on stdout
  logs [SERVICE]  print the last lines of all logs, or of the log of one service or process
              -f             also print new lines as they are written, until Ctrl-C
  stop            stop the cluster, but keep jobs and results (in .cluster, or in volumes)
              --user, --system  also delete the systemd unit that starts a local cluster at boot
  cleanup         delete the cluster with all jobs and results: its containers, networks and volumes; for a local
                  cluster, the folder .cluster with compiled kernels, and contexts. Keeps backups, ./secrets (backups
                  need these passwords), .venv and web/node_modules
              --yes          do not ask for confirmation
              --secrets      also delete ./secrets
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

# -- commands for a cluster of any kind -------------------------------------------------------------------------------

on_clusters() { # on_clusters COMMAND ARGUMENT...: run a command on the clusters to which it applies
  choose_clusters "$1"
  # The commands status and stop can apply to both containers and a local cluster.
  [[ $1 =~ ^(status|stop)$ && $CHOSEN != *kubernetes* ]] || need_one "$1"
  case $1 in
    status) cmd_status "${@:2}" ;;
    stop) cmd_stop "${@:2}" ;;
    logs) cmd_logs "${@:2}" ;;
    cleanup) cmd_cleanup "${@:2}" ;;
    *) on "${CHOSEN# }" "$@" ;;
  esac
}

on() { # on KIND COMMAND ARGUMENT...: run a command on the cluster of one kind
  [[ $1 == local ]] || "load_$1"
  if ! declare -F "$1_$2" >/dev/null; then
    [[ ! $2 =~ ^(update|rollback)$ ]] ||
      fail 1 "the command $2 is available only for local clusters." \
        "Run the command $1 of the other version, which replaces all containers one after the other."
    fail 1 "the command $2 is available only in containers and on Kubernetes."
  fi
  "$1_$2" "${@:3}"
}

cmd_status() { # status [--json]
  local kind code=0
  [[ $# -eq 0 || ($# -eq 1 && $1 == --json) ]] || wrong "status accepts only the option --json."
  if [[ $CHOSEN == *kubernetes* ]]; then
    on kubernetes status "$@"
  elif (($#)); then
    status_json
  else
    for kind in $CHOSEN; do on "$kind" status || code=$?; done
    end_said
    exit "$code"
  fi
}

status_json() { # print one object; exit code 1 if nothing is running or something is unhealthy
  local containers=null processes=null code=0
  if [[ $CHOSEN == *docker* ]]; then
    load_docker
    need_containers
    containers=$(docker_json)
    all_ready || code=1
  fi
  [[ $CHOSEN != *local* ]] || processes=$(local_json)
  printf '{"docker":%s,"local":%s}\n' "$containers" "$processes"
  end_said
  [[ $containers$processes != nullnull ]] || code=1
  exit "$code"
}

cmd_stop() {
  local kind
  (($# == 0)) || wrong "stop accepts only options that choose a cluster."
  for kind in $CHOSEN; do on "$kind" stop; done
}

cmd_logs() { # logs [SERVICE] [-f]
  local service='' follow=''
  while (($#)); do
    case $1 in
      -f | --follow) follow=yes ;;
      -*) wrong "logs has no option '$1'." ;;
      *) if [[ -z $service ]]; then service=$1; else wrong "logs accepts at most one service; without one it prints all logs."; fi ;;
    esac
    shift
  done
  on "${CHOSEN# }" logs "$service" "$follow"
}

cmd_cleanup() { # cleanup [--yes] [--secrets]
  local yes='' keys='' word
  for word in "$@"; do
    case $word in
      --yes) yes=yes ;;
      --secrets) keys=yes ;;
      *) wrong "cleanup has no option '$word'." ;;
    esac
  done
  on "${CHOSEN# }" cleanup "$yes" "$keys"
}

# -- all commands -----------------------------------------------------------------------------------------------------

dispatch() { # dispatch COMMAND ARGUMENT...
  case ${1:-} in
    local) cmd_local "${@:2}" ;;
    bundle) cmd_bundle "${@:2}" ;;
    invite) cmd_invite "${@:2}" ;;
    join) cmd_join "${@:2}" ;;
    leave) cmd_leave "${@:2}" ;;
    metrics) cmd_metrics "${@:2}" ;;
    docker)
      load_docker
      cmd_docker "${@:2}"
      ;;
    kubernetes)
      load_kubernetes
      cmd_kubernetes "${@:2}"
      ;;
    scale | autoscale | update | rollback | status | logs | stop | cleanup | report | backup | restore) on_clusters "$@" ;;
    help) usage ;;
    --version) version ;;
    '') usage >&2 && exit 2 ;;
    *) wrong "the command '$1' does not exist; the commands are: local, bundle, invite, join, leave, docker, kubernetes, scale, autoscale, update, rollback, status, logs, stop, cleanup, metrics, report, backup, restore, help." ;;
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
      --local | --docker | --kubernetes) name_cluster "${word#--}" ;;
      --system | --user)
        name_cluster local
        SCOPE=${word#--}
        ;;
      --context | --namespace)
        ((left > 1)) || wrong "$word needs a name."
        name_cluster kubernetes
        if [[ $word == --context ]]; then CONTEXT=$1; else NAMESPACE_GIVEN=$1; fi
        shift
        left=$((left - 1))
        ;;
      *) set -- "$@" "$word" ;;
    esac
  done
  [[ $SCOPE != system ]] || use_system_cluster "$@"
  dispatch "$@"
}

main "$@"
