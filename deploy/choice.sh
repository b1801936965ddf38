# shellcheck shell=bash
# Sourced by deploy-cluster.sh. Chooses the clusters to which a command applies. This file also works with bash 3.2.
#
# The options --local, --docker and --kubernetes name clusters. Without them, a command applies to the cluster of this
# checkout. If the checkout has several clusters, the command applies to the running ones.

WHERE=''           # kinds of clusters that the user named: local, docker, kubernetes
CHOSEN=''          # kinds of clusters to which the command applies
# shellcheck disable=SC2034  # used by the scripts for Kubernetes
CONTEXT=''         # kubectl context
# shellcheck disable=SC2034
NAMESPACE_GIVEN='' # namespace that the user named
STATE=''           # who owns this project's containers: ours, other or none; forbidden or away: Docker cannot be read
# Command that queries Docker, and stops if the engine does not answer. macOS has no timeout.
ASK_DOCKER=(docker)
! command -v timeout >/dev/null || ASK_DOCKER=(timeout 20 docker)

name_cluster() { # name_cluster KIND: add a kind of cluster that the user named
  [[ " $WHERE " == *" $1 "* ]] || WHERE="$WHERE $1"
}

choose_clusters() { # choose_clusters COMMAND: sets CHOSEN
  local kind present=''
  CHOSEN=$WHERE
  [[ -z $CHOSEN ]] || return 0
  for kind in kubernetes docker local; do ! "has_$kind" || present="$present $kind"; done
  if [[ ${present# } == *" "* ]]; then
    for kind in $present; do ! "runs_$kind" || CHOSEN="$CHOSEN $kind"; done
  fi
  CHOSEN=${CHOSEN:-$present}
  [[ -n $CHOSEN ]] || choose_default "$1"
}

choose_default() { # choose_default COMMAND: sets CHOSEN if this checkout has no cluster
  CHOSEN=' local'
  case $1:$STATE in
    status:* | stop:away) return ;;
    # There can be containers, so the command must fail.
    *:away | *:forbidden) CHOSEN=' docker' && return ;;
    stop:* | logs:*) return ;;
    cleanup:*) [[ ! -d $DATA ]] || return 0 ;;
  esac
  [[ -z $DRY ]] && ! engine_answers || CHOSEN=' docker'
}

need_one() { # need_one COMMAND: fail if the command applies to several clusters
  [[ ${CHOSEN# } == *" "* ]] || return 0
  local options=${CHOSEN// / --}
  fail 2 "this checkout has several clusters:$CHOSEN." "Choose one: add one of these options to ./deploy-cluster.sh $1:$options"
}

# -- which clusters there are -----------------------------------------------------------------------------------------

has_kubernetes() { [[ -f $TARGET ]]; }

runs_kubernetes() { true; }

has_local() { [[ -d $DATA/logs ]]; }

runs_local() {
  [[ -x .venv/bin/python && -d $DATA ]] &&
    .venv/bin/python -c 'import sys; from deploy.local import commands; sys.exit(not commands.is_running())' 2>/dev/null
}

has_docker() { # without the folder of secrets, this checkout has never started containers, so Docker is not queried
  [[ -d $SECRETS ]] && docker_possible || return 1
  load_docker
  find_project
  about_other
  [[ $STATE == ours ]]
}

runs_docker() { any_running; }

docker_possible() { # true if this machine can run the Docker scripts
  [[ -f docker-compose.yml ]] && command -v docker >/dev/null && has_new_bash
}

engine_answers() { docker_possible && "${ASK_DOCKER[@]}" version --format '{{.Server.Version}}' >/dev/null 2>&1; }

# -- the scripts for containers and Kubernetes ------------------------------------------------------------------------

has_new_bash() { ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 404)); }

LOADED='' # parts that were loaded

load() { # load PART...: source files of deploy/, each once
  local part
  for part in run backup_file "$@"; do
    [[ " $LOADED " != *" $part "* ]] || continue
    # shellcheck source=/dev/null
    source "deploy/$part.sh"
    LOADED="$LOADED $part"
  done
  [[ -n $WORK ]] || begin
}

need_new_bash() {
  has_new_bash ||
    fail 3 "this command needs bash 4.4 or later; the current version is $BASH_VERSION." "macOS: brew install bash"
}

load_docker() {
  need_new_bash
  load docker/{dry_run,env_file,engine,containers,trouble,pool,runner,start,update,autoscale,show,clear,report,backup}
}

load_kubernetes() {
  need_new_bash
  load kubernetes/{dry_run,target,render,preflight,images,runner,start,show,clear,backup}
}
