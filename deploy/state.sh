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
    folder=$CLUSTER_HOME/
    export CLUSTER_HOME SECRETS_FOLDER=${folder}secrets
  fi
  DATA=${folder}.cluster      # local cluster
  SECRETS=${folder}secrets    # passwords of the containers
  ENV_FILE=${folder}.env      # settings of the containers
  TARGET=${folder}.kubernetes # context and namespace of the cluster on Kubernetes
}
name_state
