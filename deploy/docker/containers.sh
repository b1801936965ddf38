# shellcheck shell=bash
# Sourced by deploy-cluster.sh. Reads the state of this project from Docker, which is the only place that stores it.

PROJECT='' # name of the Compose project
FOLDER=''  # folder of another checkout whose containers have this project's name

SERVICES=() # services of the enabled profiles
readonly LABEL=com.docker.compose

# -- the project ------------------------------------------------------------------------------------------------------

read_config() { # sets PROJECT and writes the resolved configuration to $WORK/config.yml
  try_config && return
  fail 1 "Compose does not accept the configuration: $(tail -n 1 "$WORK/log")" \
    "Compose reads docker-compose.yml and $ENV_FILE; .env.example lists all variables."
}

try_config() {
  if [[ -n $PRETENDED ]]; then
    pretend_config
    return
  fi
  "${COMPOSE[@]}" config >"$WORK/config.yml" 2>"$WORK/log" &&
    "${COMPOSE[@]}" config --services >"$WORK/services" 2>"$WORK/log" &&
    mapfile -t SERVICES <"$WORK/services" &&
    read_name
}

read_name() { # sets PROJECT
  local line
  while IFS= read -r line; do
    [[ $line == "name: "* ]] || continue
    PROJECT=${line#name: }
    return
  done <"$WORK/config.yml"
}

has_service() { [[ " ${SERVICES[*]} " == *" $1 "* ]]; }

read_replicas() { # sets REPLICAS: desired replicas of services that specify a number
  local service count
  REPLICAS=()
  while read -r service count; do REPLICAS[$service]=$count; done < <(awk '
    /^[^ ]/ { service = "" }
    /^  [^ ]/ { service = substr($1, 1, length($1) - 1) }
    service && /^      replicas: / { print service, $2 }' "$WORK/config.yml")
}
# shellcheck disable=SC2034  # used by other sourced files
declare -gA REPLICAS=()

find_project() { # sets STATE; never fails, so that stop and status also work without a usable Docker
  local said project folder
  STATE=none
  if ! said=$("${ASK_DOCKER[@]}" ps -a --format '{{.Label "com.docker.compose.project"}} {{.Label "com.docker.compose.project.working_dir"}}' 2>&1); then
    if [[ $said == *[Pp]"ermission denied"* ]]; then STATE=forbidden; else STATE=away; fi
    return 0
  fi
  find_compose || return 0
  if [[ -z $PROJECT ]] && ! try_config; then
    note "Compose does not accept the configuration: $(tail -n 1 "$WORK/log")"
    return 0
  fi
  while read -r project folder; do
    [[ $STATE == ours || $project != "$PROJECT" ]] || check_folder "$folder"
  done <<<"$said"
}

check_folder() { # check_folder FOLDER: if the folder is gone, this checkout was moved from there
  if [[ $1 -ef . || ! -e $1/docker-compose.yml || (-n $INSTALLED && $1 == "$CLUSTER_HOME"/*) ]]; then STATE=ours; else STATE=other FOLDER=$1; fi
}

need_own_project() { # fail if the project's containers belong to another checkout
  [[ -z $PRETENDED ]] || return 0
  find_project
  [[ $STATE != other ]] || fail 5 "containers of the project $PROJECT belong to another checkout: $FOLDER" \
    "Run ./deploy-cluster.sh cleanup or stop there, or set another COMPOSE_PROJECT_NAME in $ENV_FILE."
}

need_containers() { # fail if this checkout has no containers
  [[ $STATE == ours ]] && return
  need_docker
  read_config
  need_own_project
  [[ $STATE == ours ]] || fail 1 "this checkout has no containers." "Start them: ./deploy-cluster.sh docker"
}

alone() { # allow only one changing command at a time
  [[ -z $DRY ]] && command -v flock >/dev/null || return 0
  exec 9<docker-compose.yml
  flock -n 9 || fail 5 "another ./deploy-cluster.sh is changing this cluster." "Wait until it exits, then run the command again."
}

# -- containers -------------------------------------------------------------------------------------------------------

# Use .ID, because .Id makes Docker read raw JSON, which lacks .State.Health if a container has no health check.
readonly ROW='{{.ID}} {{index .Config.Labels "com.docker.compose.service"}} {{index .Config.Labels "com.docker.compose.container-number"}} {{.State.Status}} {{if .State.Health}}{{.State.Health.Status}}{{else}}-{{end}} {{index .Config.Labels "com.docker.compose.config-hash"}} {{.Image}}'

containers() { # containers [SERVICE]: print ID, service, number, state, health (- without a check), hash and image of each container
  local ids=() filters=(--filter "label=$LABEL.project=$PROJECT" --filter "label=$LABEL.oneoff=False")
  [[ -z ${1:-} ]] || filters+=(--filter "label=$LABEL.service=$1")
  mapfile -t ids < <(docker ps --all --quiet --no-trunc "${filters[@]}")
  ((${#ids[@]})) || return 0
  # Omit containers that were removed in the meantime.
  { docker inspect --format "$ROW" "${ids[@]}" 2>/dev/null || true; } | sort -k2,2 -k3,3n
}

# shellcheck disable=SC2016  # fields of awk, not of this shell
readonly GOOD='$4 == "running" && ($5 == "healthy" || $5 == "-")'

good() { awk "$GOOD { print \$1 }"; } # print the IDs of serving containers among the records on stdin

bad() { # print containers that should be serving but are not; workers of the pool can be stopped
  awk "!($GOOD) && !(\$2 == \"$POOL\" && (\$4 == \"created\" || \$4 == \"exited\"))"
}

running_id() { # running_id SERVICE: print the ID of a serving container, if any
  local id state health
  while read -r id _ _ state health _; do
    [[ $state == running && $health =~ ^(healthy|-)$ ]] || continue
    printf '%s\n' "$id"
    return
  done < <(containers "$1")
}

any_running() { # any_running [SERVICE]
  local state
  while read -r _ _ _ state _; do
    [[ ! $state =~ ^(running|restarting)$ ]] || return 0
  done < <(containers "${1:-}")
  return 1
}

# -- readiness --------------------------------------------------------------------------------------------------------

all_good() { # all_good SERVICE...: true if every container of these services is serving; without names, of all services
  local service
  (($#)) || set -- ''
  for service in "$@"; do
    [[ -z $(containers "$service" | bad) ]] || return 1
  done
}

show_tail() { # show_tail ID NAME: print the last log lines of a container, without secrets
  say "The last lines of $2:"
  { docker logs --tail 20 "$1" 2>&1 || true; } | redacted | sed 's/^/    /' >&2
}

show_bad() { # print the last log lines of up to three unhealthy containers
  local id service number state health _
  while read -r id service number state health _; do
    show_tail "$id" "$service-$number ($state, ${health/#-/no health check})"
  done < <(containers | bad | head -n 3)
}

need_good() { # need_good SERVICE...: before version 5.5, `up --wait` of Compose reports success after a timeout
  [[ -z $DRY ]] || return 0
  await $((START_SECONDS < 20 ? START_SECONDS : 20)) all_good "$@" && return
  show_bad
  fail 4 "not everything is ready: $(containers | bad | awk '{ print $2 "-" $3 " is " $4 ($5 == "-" ? "" : ", " $5) }' | paste -sd ';' -)." \
    "See: ./deploy-cluster.sh status, ./deploy-cluster.sh logs SERVICE; then run the same command again."
}
