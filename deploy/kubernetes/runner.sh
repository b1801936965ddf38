# shellcheck shell=bash
# Sourced by deploy-cluster.sh: tokens of runners, one for each pod, which a coordinator makes once it is ready.

has_runner() { [[ $FEATURES == *'secretName: runner-tokens'* ]]; } # the overlay has the component runner

give_runner_tokens() { # the Secret runner-tokens has one for each pod that the cluster knows
  local name number replicas renewed=()
  has_runner || return 0
  if [[ -n $DRY ]]; then
    note "a coordinator makes a token for each runner, unless it knows the one that is there: the Secret runner-tokens."
    return
  fi
  coordinator_ready || say "Waiting for a coordinator, which makes the tokens of runners ..."
  await "$START_SECONDS" coordinator_ready || unready "no coordinator is ready, which would make the runners' tokens."
  fetch_runner_tokens
  replicas=$(k get statefulset runner --output 'jsonpath={.spec.replicas}')
  for ((number = 0; number < replicas; number++)); do
    name=runner-$number
    ! renew_runner_token "$name" || renewed+=("$name")
  done
  ((${#renewed[@]})) || return 0
  store_runner_tokens
  # What a running pod has of a Secret stays; one that waits for the Secret would ask for it again in a minute or two.
  run_k delete pod "${renewed[@]}" --ignore-not-found --wait=false
}

coordinator_ready() { [[ -n $(ready_pod coordinator) ]]; }

fetch_runner_tokens() { # those of the cluster, into $WORK/runner_tokens
  local name value
  mkdir -m 0700 "$WORK/runner_tokens"
  k get secret runner-tokens --ignore-not-found --output "go-template=$FILES" >"$WORK/tokens" 2>"$WORK/log" ||
    unreadable "secret runner-tokens"
  while read -r name value; do base64 -d <<<"$value" >"$WORK/runner_tokens/$name"; done <"$WORK/tokens"
  rm "$WORK/tokens"
}

# Read here: the coordinator that is asked may be one of before, with other settings.
worker_labels() { # the setting WORKER_LABELS of the overlay's workers
  awk '$0 == "---" { labels = "" } sub(/^  WORKER_LABELS: /, "") { labels = $0 } /^  name: settings(-|$)/ { print labels }' \
    "$WORK/plain.yaml" | tr -d "\"'"
}

renew_runner_token() { # renew_runner_token NAME: 1 when the cluster knows the one that is there, with WORKER_LABELS
  local file=$WORK/runner_tokens/$1 id=''
  [[ ! -f $file ]] || id=$(cut -d _ -f 2 "$file")
  # Never in a variable, which DEBUG=1 would show.
  in_a_coordinator deploy/runner_token.py "$1" "${id:-none}" "$(worker_labels)" >"$file.new" 2>"$WORK/log" ||
    fail 1 "no token for $1 could be made: $(tail -n 1 "$WORK/log")" "Then run the same command again."
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
