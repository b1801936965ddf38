# shellcheck shell=bash
# Sourced by deploy-cluster.sh. Checks Docker before the first change, without side effects.

readonly OLDEST_ENGINE=20.10 OLDEST_COMPOSE=2.20
#: Upper bound for the number of workers on one machine.
# shellcheck disable=SC2034
readonly MOST_WORKERS=1000
readonly ROOM_MB=3000
NO_DOCKER='Without Docker: ./deploy-cluster.sh local'
COMPOSE=(docker compose)
COMPOSE_VERSION='' # version of Compose, or empty before it is known

# -- engine and Compose -----------------------------------------------------------------------------------------------

need_command() {
  command -v docker >/dev/null && return
  fail 3 "the docker command is not installed." \
    "Debian 13: sudo apt install docker.io docker-compose    Ubuntu: sudo apt install docker.io docker-compose-v2" \
    "Others: Docker Engine with its Compose plugin, https://docs.docker.com/engine/install" "$NO_DOCKER"
}

need_engine() {
  local said
  if ! said=$("${ASK_DOCKER[@]}" version --format '{{.Server.Version}}' 2>&1); then
    no_engine "${said:-no response within 20 seconds}"
  fi
  at_least "$said" "$OLDEST_ENGINE" && return
  fail 3 "Docker Engine $OLDEST_ENGINE or later is required; the installed version is $said." "Update it: https://docs.docker.com/engine/install"
}

no_engine() { # no_engine OUTPUT
  if [[ $1 == *[Pp]"ermission denied"* ]]; then
    fail 3 "this user has no access to the Docker engine (permission denied on its socket)." \
      "Run sudo usermod -aG docker $(id -un) and log in again, or run sudo ./deploy-cluster.sh ..."
  fi
  fail 3 "the Docker engine does not answer: $(tail -n 1 <<<"$1")" \
    "Start it: sudo systemctl start docker (Docker Desktop: start the application)." "$NO_DOCKER"
}

find_compose() { # sets COMPOSE; fails if Compose 2 is not installed
  [[ -z $COMPOSE_VERSION ]] || return 0
  local said
  COMPOSE=(docker compose)
  if ! said=$(docker compose version --short 2>/dev/null) || ! at_least "$said" 2.0; then
    said=$(docker-compose version --short 2>/dev/null) && at_least "$said" 2.0 || return 1
    # shellcheck disable=SC2034  # used by other sourced files
    COMPOSE=(docker-compose)
  fi
  [[ -z $INSTALLED ]] || add_env_file
  COMPOSE_VERSION=$said
}

add_env_file() { # let Compose read $ENV_FILE, which it does not find by itself outside of the folder of docker-compose.yml
  [[ -n $DRY || -f $ENV_FILE ]] || printf '%s\n' "$NEW_ENV" >"$ENV_FILE"
  [[ ! -f $ENV_FILE ]] || COMPOSE+=(--env-file "$ENV_FILE")
}

need_compose() {
  find_compose || no_compose
  at_least "$COMPOSE_VERSION" "$OLDEST_COMPOSE" && return
  fail 3 "Compose $OLDEST_COMPOSE or later is required; the installed version is $COMPOSE_VERSION." "Update it: https://docs.docker.com/compose/install"
}

no_compose() {
  local what="'docker compose' does not work: its plugin is not installed." said
  said=$(docker-compose version --short 2>/dev/null) && what="docker-compose $said is Compose 1; 2.20 or later is required."
  fail 3 "$what" \
    "Debian 13: sudo apt install docker-compose (that is the plugin)    Ubuntu: sudo apt install docker-compose-v2" \
    "Others: https://docs.docker.com/compose/install/linux"
}

need_docker() {
  if [[ -n $DRY ]] && ! "${ASK_DOCKER[@]}" version >/dev/null 2>&1; then
    pretend_engine
    return
  fi
  need_command
  need_engine
  need_compose
}

engine_cores() { docker info --format '{{.NCPU}}'; }

# -- disk space and ports ---------------------------------------------------------------------------------------------

check_room() { # check free disk space at the first start, if this machine can see the engine's folder
  local root free
  ! any_running coordinator || return 0
  root=$(docker info --format '{{.DockerRootDir}}' 2>/dev/null) && [[ -d $root ]] || return 0
  free=$(df -Pm "$root" | awk 'NR == 2 { print $4 }')
  [[ $free =~ ^[0-9]+$ ]] || return 0
  ((free >= ROOM_MB)) || fail 3 "only $free MB are free in $root; images and data need about $ROOM_MB MB." \
    "Free some space: docker system df, docker system prune"
}

answers() { # answers HOST PORT: true if a program is listening there
  (exec 3<>"/dev/tcp/$1/$2") 2>/dev/null
}

listen_host() { # print the local address under which the cluster's ports are reachable
  local bind
  bind=$(setting BIND 127.0.0.1)
  case $bind in 0.0.0.0 | '') echo 127.0.0.1 ;; '::' | '[::]') echo ::1 ;; *) printf '%s\n' "${bind//[][]/}" ;; esac
}

check_port() { # check_port NAME PORT: fail if another program uses the port
  number "$1" "$2" 1 65535
  local holders
  holders=$(docker ps --filter "publish=$2" --format '{{.Names}} {{.Label "com.docker.compose.project"}}')
  [[ $holders$'\n' != *" $PROJECT"$'\n'* ]] || return 0
  if [[ -n $holders ]]; then
    fail 6 "port $2 is in use by the container $(sed -n '1s/ .*//p' <<<"$holders")." "Choose another port: $1=... in $ENV_FILE"
  fi
  ! answers "$(listen_host)" "$2" || fail 6 "port $2 is in use by another program." \
    "Choose another port: $1=$((10#$2 < 1024 ? 10#$2 + 8000 : 10#$2 + 1)) in $ENV_FILE    Find the program: sudo ss -ltnp 'sport = :$2'"
}

check_ports() {
  local name default service port taken=' '
  while read -r name default service; do
    has_service "$service" || continue
    port=$(setting "$name" "$default")
    [[ $taken != *" $port "* ]] || wrong "$name is $port, but another service also uses this port; see $ENV_FILE."
    taken+="$port "
    check_port "$name" "$port"
  done <<<'HTTP_PORT 80 nginx
COORDINATOR_PORT 3000 nginx
GRAFANA_PORT 3001 grafana
PROMETHEUS_PORT 9091 prometheus'
}

# -- GPUs -------------------------------------------------------------------------------------------------------------

gpus() { # print the number of GPUs of this machine
  local found
  found=$(nvidia-smi -L 2>/dev/null) || true
  grep -c '^GPU ' <<<"$found" || true
}

engine_knows_gpus() { # true if Docker has the NVIDIA runtime or an NVIDIA CDI device
  [[ -z $PRETENDED ]] || return 0
  [[ $(docker info --format '{{json .Runtimes}}' 2>/dev/null) == *'"nvidia"'* ]] && return
  [[ $(docker info --format '{{json .DiscoveredDevices}}' 2>/dev/null) == *nvidia.com/gpu* ]] && return
  compgen -G '/etc/cdi/*nvidia*' >/dev/null || compgen -G '/var/run/cdi/*nvidia*' >/dev/null
}

check_gpus() { # check_gpus WORKERS GPU_WORKERS
  (($2)) || return 0
  local there way="Without GPU workers: ./deploy-cluster.sh docker $1 0"
  there=$(gpus)
  ((there)) || fail 3 "$2 GPU workers were requested, but nvidia-smi finds no GPU." "$way" \
    "To use a GPU, install NVIDIA's driver so that 'nvidia-smi -L' lists the GPU, then the NVIDIA container toolkit."
  (($2 <= there)) || fail 3 "$2 GPU workers were requested, but there are only $there GPUs; each worker uses one." \
    "./deploy-cluster.sh docker $1 $there"
  engine_knows_gpus || fail 3 "Docker cannot use this machine's $there GPUs: the NVIDIA container toolkit is missing." "$way" \
    "Install nvidia-container-toolkit, then: sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker"
}

warn_of_many() { # warn_of_many CPU_WORKERS CORES
  (($1 <= $2)) || note "$1 CPU workers on $(counted "$2" core): more workers than cores are not faster."
}
