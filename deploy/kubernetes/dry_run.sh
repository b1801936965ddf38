# shellcheck shell=bash
# Sourced by deploy-cluster.sh. Lets --dry-run print commands without a Kubernetes cluster, and without kubectl.
# shellcheck disable=SC2034,SC2329  # used by other sourced files

pretend_cluster() { # answer the queries of this run as an empty Kubernetes cluster would
  local context=${CONTEXT:-$(target_line CONTEXT)}
  note "No Kubernetes cluster answers. The commands below are those for an empty cluster."
  PRETENDED=yes
  use_cluster "${context:-CONTEXT}"
  k() { true; }
  command -v kubectl >/dev/null || pretend_kubectl
}

pretend_kubectl() { # continue without manifests, which only kubectl can build
  [[ -z ${MANIFESTS:-} ]] || fail 3 "--manifests needs the kubectl command, which builds the manifests." "$GET_KUBECTL"
  note "The kubectl command is not installed, so the manifests are neither built nor checked."
  kubectl() { true; }
}

kubernetes_answers() {
  local context=${CONTEXT:-$(target_line CONTEXT)}
  command -v kubectl >/dev/null &&
    kubectl ${context:+--context "$context"} get --raw /version --request-timeout 5s >/dev/null 2>&1
}
