# shellcheck shell=bash
# Sourced by deploy-cluster.sh. Creates a token for each runner pod with the help of a ready coordinator.

has_runner() { [[ $FEATURES == *'secretName: runner-tokens'* ]]; } # true if the overlay contains the component runner

give_runner_tokens() { # fill the Secret runner-tokens with a valid token for each pod
  local name number replicas renewed=()
  has_runner || return 0
  if [[ -n $DRY ]]; then
    note "a coordinator creates tokens of runners in the Secret runner-tokens unless the existing tokens are valid."
    return
  fi
  coordinator_ready || say "Waiting for a coordinator that creates the runner tokens ..."
  await "$START_SECONDS" coordinator_ready || unready "no coordinator is ready to create the runner tokens."
  fetch_runner_tokens
  replicas=$(k get statefulset runner --output 'jsonpath={.spec.replicas}')
  for ((number = 0; number < replicas; number++)); do
    name=runner-$number
    ! renew_runner_token "$name" || renewed+=("$name")
  done
  ((${#renewed[@]})) || return 0
  store_runner_tokens
  # A running pod keeps the old Secret, and a waiting pod would retry only after a minute or two.
  run_k delete pod "${renewed[@]}" --ignore-not-found --wait=false
}

coordinator_ready() { [[ -n $(ready_pod coordinator) ]]; }

fetch_runner_tokens() { # load the cluster's runner tokens into $WORK/runner_tokens
  local name value
  mkdir -m 0700 "$WORK/runner_tokens"
  k get secret runner-tokens --ignore-not-found --output "go-template=$FILES" >"$WORK/tokens" 2>"$WORK/log" ||
    unreadable "the Secret runner-tokens"
  while read -r name value; do base64 -d <<<"$value" >"$WORK/runner_tokens/$name"; done <"$WORK/tokens"
  rm "$WORK/tokens"
}

# Read the setting from the overlay, because the coordinator may still be running with older settings.
worker_labels() { # print the setting WORKER_LABELS of the overlay's workers
  awk '$0 == "---" { labels = "" } sub(/^  WORKER_LABELS: /, "") { labels = $0 } /^  name: settings(-|$)/ { print labels }' \
    "$WORK/plain.yaml" | tr -d "\"'"
}

renew_runner_token() { # renew_runner_token NAME: create a token; fails if the existing token is valid and has WORKER_LABELS
  local file=$WORK/runner_tokens/$1 id=''
  [[ ! -f $file ]] || id=$(cut -d _ -f 2 "$file")
  # Do not store the token in a variable, which DEBUG=1 would print.
  in_a_coordinator deploy/runner_token.py "$1" "${id:-none}" "$(worker_labels)" >"$file.new" 2>"$WORK/log" ||
    fail 1 "cannot create a token for $1: $(tail -n 1 "$WORK/log")" "Then run the same command again."
  if [[ ! -s $file.new ]]; then
    rm "$file.new"
    return 1
  fi
  tr -d '\n' <"$file.new" >"$file"
  rm "$file.new"
}

store_runner_tokens() {
  k create secret generic runner-tokens --from-file="$WORK/runner_tokens" --dry-run=client --output yaml </dev/null |
    k apply --server-side --force-conflicts --filename - >/dev/null
}
