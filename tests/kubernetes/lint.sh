#!/usr/bin/env bash
# Check the manifests in k8s/ with checkov: both overlays, each alone and with all compatible components.
# k8s/checkov.yaml lists the skipped checks with the reasons.
# The first run installs checkov (290 MB) into .cluster/cache, which takes minutes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

readonly VERSION=3.3.30 FOLDER=.cluster/cache/checkov
WORK=$(mktemp -d)
readonly WORK
trap 'rm -rf "$WORK"' EXIT

install_checkov() {
  [[ $(cat "$FOLDER/version" 2>/dev/null) != "$VERSION" ]] || return 0
  printf 'Installing checkov %s into %s ...\n' "$VERSION" "$FOLDER" >&2
  rm -rf "$FOLDER"
  .venv/bin/python -m venv "$FOLDER"
  "$FOLDER/bin/pip" install --quiet "checkov==$VERSION"
  printf '%s\n' "$VERSION" >"$FOLDER/version"
}

build() { # build OVERLAY COMPONENT...
  local folder=$WORK/$1-$# top name
  mkdir "$folder"
  top=$(realpath --relative-to="$folder" k8s)
  {
    printf 'namespace: threads-cluster\nresources: [%s/overlays/%s]\ncomponents:\n' "$top" "$1"
    for name in "${@:2}"; do printf '  - %s/components/%s\n' "$top" "$name"; done
  } >"$folder/kustomization.yaml"
  kubectl kustomize "$folder" >"$folder/manifests.yaml"
  "$FOLDER/bin/checkov" --config-file k8s/checkov.yaml --file "$folder/manifests.yaml"
  printf 'checked: %s\n' "$*" >&2
}

install_checkov
build dev
build dev gpu ingress keda storage
build prod
build prod gpu ingress storage
