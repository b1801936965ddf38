#!/bin/bash
# kubectl for tests of deploy-cluster.sh: writes each call to $FAKE/calls and answers from files in $FAKE.
set -u
printf 'kubectl %s\n' "$*" >>"$FAKE/calls"
words=" $* "
# Without other programs, since each test calls this many times.
file() { # file NAME: prints it if it exists
  local text
  [[ ! -f $FAKE/$1 ]] || IFS= read -r -d '' text <"$FAKE/$1" || printf %s "$text"
}
has_line() { # has_line NAME LINE
  local line
  [[ -f $FAKE/$1 ]] || return 1
  while read -r line; do
    [[ $line != "$2" ]] || return 0
  done <"$FAKE/$1"
  return 1
}
if [[ -f $FAKE/refuse ]]; then
  mapfile -t refuse <"$FAKE/refuse"
  if [[ $words == *"${refuse[0]}"* ]]; then
    printf '%s\n' "${refuse[@]:1}" >&2
    exit 1
  fi
fi
case $words in
  *' version --client '*) echo "Client Version: v$(file client)" ;;
  *' current-context '*) file context && [[ -f $FAKE/context ]] ;;
  *' get --raw /version '*) printf '{"major": "1", "gitVersion": "v%s"}\n' "$(file server)" ;;
  *' kustomize '*)
    cp "${*: -1}/kustomization.yaml" "$FAKE/kustomization.yaml"
    printf 'apiVersion: apps/v1\nkind: Deployment\n      - image: valkey/valkey:8.1.8-trixie\n        image: threads/web:0.1.0\n'
    [[ ! -f $FAKE/replicas ]] || echo '            secretName: runner-tokens'
    [[ ! -f $FAKE/labels ]] || printf -- '---\ndata:\n  WORKER_LABELS: %s\nkind: ConfigMap\nmetadata:\n  name: settings-x\n' "$(<"$FAKE/labels")"
    [[ ! -f $FAKE/server ]] || echo '  unhealthyPodEvictionPolicy: AlwaysAllow'
    [[ ! -f $FAKE/left ]] || printf -- '---\nkind: PersistentVolume\n'
    [[ $words != *overlays/prod* ]] || printf -- '---\napiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\n'
    ;;
  *' api-versions '*) file apis ;;
  *' auth can-i '*) ! has_line cannot "${*: -1}" ;;
  *' get storageclasses '*) file classes ;;
  *' get nodes '*) file gpus ;;
  *' get statefulset sentinel '*) file sentinel ;;
  *' get configmap deployment '*) file deployed ;;
  *' get secret passwords --ignore-not-found --output name '*) [[ ! -f $FAKE/passwords ]] || echo secret/passwords ;;
  *' get secret passwords '*) file passwords ;;
  *' create secret generic passwords '*)
    for word in "$@"; do
      [[ $word != --from-file=* ]] || echo "${word##*/} $(base64 -w 0 <"${word#*=}")" >>"$FAKE/passwords"
    done
    ;;
  *' get secret runner-tokens '*) file runner-tokens ;;
  *' create secret generic runner-tokens '*)
    for word in "$@"; do
      [[ $word != --from-file=* ]] || (cd "${word#*=}" && for name in *; do echo "$name $(base64 -w 0 <"$name")"; done) >"$FAKE/runner-tokens"
    done
    ;;
  *' get persistentvolumes '*) file left ;;
  *' get statefulset runner '*) file replicas ;;
  *' get namespace '*'.status.phase'*) file phase ;;
  *' get namespace '*) file namespace ;;
  *' get pod redis-restore '*) file restoring ;;
  *' create namespace '*) echo namespace/made >"$FAKE/namespace" ;;
  *' delete namespace '*) rm -f "$FAKE/namespace" "$FAKE/deployed" "$FAKE/passwords" ;;
  *' apply --server-side '*)
    sed -n '/literals: \[workers=/,/\]/p' "$FAKE/kustomization.yaml" | sed 's/^ *//; s/literals: \[//; s/,$//; s/\]$//; s/, /\n/g' >"$FAKE/deployed"
    ;;
  *' get deployments,statefulsets --selector app.kubernetes.io/part-of=threads-cluster --output go-template'*) file rows ;;
  *' get deployments,statefulsets,daemonsets'*'part-of!='*) file others ;;
  *' get pods '*containerStatuses*) file reasons ;;
  *' get pods '*name=redis' '*conditions*) echo redis-0 ;;
  *' get pods '*conditions*) echo coordinator-x ;;
  *' get pods --selector '*) ;;
  *' exec --stdin coordinator-x '*' python3 - runner-'*) # NAME ID LABELS: nothing for a token that the cluster knows
    has_line known "${*: -2:1}${*: -1}" || echo "tc_id-of-${*: -3:1}_secret"
    ;;
  *' exec --stdin coordinator-x '*) echo '{}' ;;
  *' exec --stdin redis-0 '*)
    cat >"$FAKE/piped"
    printf 'REDIS0011 a dump'
    printf 'fact redis_version 7.4.2\nfact keys 3\nfact bytes 16\nfact sha256 %s\n' \
      "$(printf 'REDIS0011 a dump' | sha256sum | cut -d ' ' -f 1)" >&2
    ;;
  *' exec --stdin redis-restore '*)
    cat >"$FAKE/piped"
    echo 'keys 3'
    ;;
esac
