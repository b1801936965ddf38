# shellcheck shell=bash
# Sourced by deploy-cluster.sh: what Docker says of this project. Only reads. State lies in Docker, in no file of ours.

PROJECT='' # Compose's project
FOLDER=''  # another checkout whose containers have this project's name
STATE=''   # ours, other, none, forbidden, or away where no engine answers: containers of this project, of this checkout

SERVICES=() # services of the profiles that are on
readonly LABEL=com.docker.compose

# -- the project ------------------------------------------------------------------------------------------------------

read_config() { # sets PROJECT; the files as Compose understands them lie in $WORK/config.yml
  try_config && return
  fail 1 "Compose does not accept the configuration: $(tail -n 1 "$WORK/log")" \
    "It reads docker-compose.yml and .env; all variables stand in .env.example."
}

try_config() {
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

read_replicas() { # sets REPLICAS: how many are wanted of services that name a number
  local service count
  REPLICAS=()
  while read -r service count; do REPLICAS[$service]=$count; done < <(awk '
    /^[^ ]/ { service = "" }
    /^  [^ ]/ { service = substr($1, 1, length($1) - 1) }
    service && /^      replicas: / { print service, $2 }' "$WORK/config.yml")
}
# shellcheck disable=SC2034  # others read it
declare -gA REPLICAS=()

find_project() { # sets STATE; never fails, so that stop and status also work without a usable Docker
  local said project folder
  STATE=none
  if ! said=$(docker ps -a --format '{{.Label "com.docker.compose.project"}} {{.Label "com.docker.compose.project.working_dir"}}' 2>&1); then
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

check_folder() { # check_folder FOLDER: a folder that is gone was this checkout before it was moved
  if [[ $1 -ef . || ! -e $1/docker-compose.yml ]]; then STATE=ours; else STATE=other FOLDER=$1; fi
}

need_own_project() { # the project's containers, if there are any, belong to this checkout
  find_project
  [[ $STATE != other ]] || fail 5 "containers of the project $PROJECT belong to another checkout: $FOLDER" \
    "Stop them there with ./deploy-cluster.sh cleanup or stop, or give this checkout a name: COMPOSE_PROJECT_NAME=... in .env"
}

alone() { # one command at a time that changes something
  [[ -z $DRY ]] && command -v flock >/dev/null || return 0
  exec 9<docker-compose.yml
  flock -n 9 || fail 5 "another ./deploy-cluster.sh works on this cluster." "Wait until it has ended, then run this again."
}

# -- containers -------------------------------------------------------------------------------------------------------

# .ID and not .Id: the latter makes Docker read raw JSON, where a container without a check has no .State.Health at all.
readonly ROW='{{.ID}} {{index .Config.Labels "com.docker.compose.service"}} {{index .Config.Labels "com.docker.compose.container-number"}} {{.State.Status}} {{if .State.Health}}{{.State.Health.Status}}{{else}}-{{end}} {{index .Config.Labels "com.docker.compose.config-hash"}} {{.Image}}'

containers() { # containers [SERVICE]: lines of id, service, number, state, health (- without a check), hash, image
  local ids=() filters=(--filter "label=$LABEL.project=$PROJECT" --filter "label=$LABEL.oneoff=False")
  [[ -z ${1:-} ]] || filters+=(--filter "label=$LABEL.service=$1")
  mapfile -t ids < <(docker ps --all --quiet --no-trunc "${filters[@]}")
  ((${#ids[@]})) || return 0
  # One that is gone by now is left out.
  { docker inspect --format "$ROW" "${ids[@]}" 2>/dev/null || true; } | sort -k2,2 -k3,3n
}

# shellcheck disable=SC2016  # awk's fields
readonly GOOD='$4 == "running" && ($5 == "healthy" || $5 == "-")'

good() { awk "$GOOD { print \$1 }"; } # of rows on stdin: ids of those that serve

bad() { # of rows on stdin: those that do not, though they should; a worker by need may be stopped
  awk "!($GOOD) && !(\$2 == \"$POOL\" && (\$4 == \"created\" || \$4 == \"exited\"))"
}

running_id() { # running_id SERVICE: one that serves, or nothing
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

all_good() { # all_good SERVICE...: every container of these, of all without a name
  local service
  (($#)) || set -- ''
  for service in "$@"; do
    [[ -z $(containers "$service" | bad) ]] || return 1
  done
}

show_tail() { # show_tail ID NAME: its last lines, without secrets
  say "The last lines of $2:"
  { docker logs --tail 20 "$1" 2>&1 || true; } | redacted | sed 's/^/    /' >&2
}

show_bad() { # the last lines of what is not well, of three containers at most
  local id service number state health _
  while read -r id service number state health _; do
    show_tail "$id" "$service-$number ($state, ${health/#-/no health check})"
  done < <(containers | bad | head -n 3)
}

need_good() { # need_good SERVICE...: Compose before 5.5 takes running out of --wait-timeout for success
  [[ -z $DRY ]] || return 0
  await $((START_SECONDS < 20 ? START_SECONDS : 20)) all_good "$@" && return
  show_bad
  fail 4 "not everything is ready: $(containers | bad | awk '{ print $2 "-" $3 " is " $4 ($5 == "-" ? "" : ", " $5) }' | paste -sd ';' -)." \
    "See: ./deploy-cluster.sh status, ./deploy-cluster.sh logs SERVICE; then run the same command again."
}
