# shellcheck shell=bash
# Sourced by deploy-cluster.sh. Names the files with the state of the cluster. This file also works with bash 3.2.

# Folder with the state. An installation sets it, so that all its releases share the state.
CLUSTER_HOME=${CLUSTER_HOME:-$PWD}
[[ $CLUSTER_HOME == /* ]] || CLUSTER_HOME=$CALLED_FROM/$CLUSTER_HOME

# shellcheck disable=SC2034  # used by other sourced files
name_state() { # in a checkout, the names are relative, which keeps messages short
  INSTALLED='' # yes: the code is a release of an installation, and not a checkout
  local folder=''
  if ! [[ $CLUSTER_HOME -ef . ]]; then
    INSTALLED=yes
    cd -P . || exit 1 # a link to the release can change while its processes are running
    folder=$CLUSTER_HOME/
    export CLUSTER_HOME SECRETS_FOLDER=${folder}secrets
  fi
  DATA=${folder}.cluster      # local cluster
  SECRETS=${folder}secrets    # passwords of the containers
  ENV_FILE=${folder}.env      # settings of the containers
  TARGET=${folder}.kubernetes # context and namespace of the cluster on Kubernetes
}
name_state

named() { # named TEXT: print a message with the names that commands have for the user; see command_names.py
  local text=$1
  if [[ -n $INSTALLED ]]; then
    text=${text//.\/deploy-cluster.sh local, docker or kubernetes/cluster start}
    text=${text//.\/deploy-cluster.sh local/cluster start}
    text=${text//.\/deploy-cluster.sh docker/cluster start --docker}
    text=${text//.\/deploy-cluster.sh kubernetes/cluster start --kubernetes}
    text=${text//.\/deploy-cluster.sh status/cluster status --processes}
    text=${text//.\/deploy-cluster.sh logs -f/cluster logs --process all -f}
    text=${text//.\/deploy-cluster.sh logs/cluster logs --process}
    text=${text//.\/deploy-cluster.sh help/cluster --help}
    text=${text//.\/deploy-cluster.sh/cluster}
    text=${text//this checkout/this installation}
  fi
  printf '%s\n' "$text"
}
