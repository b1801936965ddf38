#!/usr/bin/env bash
# The first hour of a new user: every command that they type, a check of each result, and the seconds of each step.
# Usage: HOME=EMPTY_FOLDER TMPDIR=EMPTY_FOLDER PORT=P new_user.sh REPOSITORY MODEL.gguf [PREPARATION]
# PREPARATION is a shell command that runs in the new clone before the first start, for example to provide packages.
set -euo pipefail

repository=$1 model=$2 preparation=${3:-}
url=http://127.0.0.1:$PORT
checkout=$HOME/threads-cluster
began='' title=''

step() { # step TITLE: print the seconds of the previous step, and begin the next one
  local now=${EPOCHREALTIME/[.,]/}
  [[ -z $began ]] || printf '%7d.%d s  %s\n' $(((now - began) / 1000000)) $(((now - began) / 100000 % 10)) "$title"
  title=$1 began=$now
}

expect() { # expect WHAT ACTUAL EXPECTED
  [[ $2 == "$3" ]] || fail "$1 is '$2' instead of '$3'"
}

refuses() { # refuses COMMAND...: check that the command fails with a message
  ! "$@" 2>~/refusal || fail "'$*' did not fail"
  [[ -s ~/refusal ]] || fail "'$*' failed without a message"
}

fail() {
  printf 'error: %s: %s\n' "$title" "$*" >&2
  exit 1
}

start() { # start the cluster in a first terminal, and wait for the text that names the first commands
  : >~/terminal # because the text of the previous start would count
  ./deploy-cluster.sh local --port "$PORT" >>~/terminal 2>&1 &
  terminal=$!
  until grep -q '^State: .* Stop: ' ~/terminal; do
    kill -0 $terminal || fail "the cluster did not start: $(cat ~/terminal)"
    sleep 0.1
  done
  ! grep -q '^error: ' ~/terminal || fail "the start reports an error: $(cat ~/terminal)"
  grep -E '^(Installed|Ready) after' ~/terminal
}

stop() {
  ./deploy-cluster.sh stop
  wait $terminal || fail "the first terminal ended with $?: $(cat ~/terminal)"
}

ask_model() { # print the answer of the model; repeat the question while no replica is ready
  curl --silent --show-error --fail --retry 60 --retry-delay 1 "$url/v1/chat/completions" -H "Authorization: Bearer $key" \
    -H 'Content-Type: application/json' \
    -d '{"model": "chat", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8, "temperature": 0}' |
    python -c 'import json, sys; print(json.load(sys.stdin)["choices"][0]["message"]["content"])'
}

as_anna() { # run a command as a colleague, who has a home directory of her own
  HOME=$HOME/anna "$@"
}

end() { # show what a failed step left in the first terminal, and stop the cluster
  local code=$?
  ((code == 0)) || { cat ~/terminal && cd "$checkout" && ./deploy-cluster.sh stop; } >&2 || true
}
trap end EXIT
trap 'exit 143' TERM

step "clone"
cd
git clone --quiet "$repository" threads-cluster
cd threads-cluster

if [[ -n $preparation ]]; then
  step "preparation"
  bash -c "$preparation"
fi

step "first start"
start
curl --silent --fail "$url/" | grep -o '<title>.*</title>' || fail "$url/ is not a page"

step "cluster status"
export PATH="$checkout/.venv/bin:$PATH"
cluster status >~/status
grep -q "API and pages $PORT" ~/status || fail "cluster status does not name the port: $(cat ~/status)"

step "a script with two data files"
mkdir ~/sales && cd ~/sales
printf '10\n20\n' >north.txt
printf '5\n' >south.txt
cat >total.py <<'TEXT'
import pathlib, sys

numbers = [int(line) for name in sys.argv[1:] for line in open(name)]
pathlib.Path("total.txt").write_text(f"{sum(numbers)}\n")
TEXT
cluster run --output total.txt -- python3 total.py north.txt south.txt
expect "the total" "$(cat total.txt)" 35

step "500 files with one shell line"
mkdir ~/notes && cd ~/notes
for number in {1..500}; do seq "$number" >"$number.txt"; done
ls >../names.txt
# shellcheck disable=SC2016  # the runner's shell expands the variables
job=$(cluster submit command --items ../names.txt --files . --output '*.count' \
  --shell 'wc -l <"$CLUSTER_ITEM" >"${CLUSTER_ITEM%.txt}.count"')
cluster watch "$job"
cluster result "$job" --fetch ~/counts --flat
expect "the number of files" "$(find ~/counts -name '*.count' | wc -l)" 500
expect "the sum of the counts" "$(awk '{ sum += $1 } END { print sum }' ~/counts/*.count)" 125250

step "a Python function over 1,000 numbers"
mkdir ~/squares && cd ~/squares
cat >work.py <<'TEXT'
def square(n):
    return n * n
TEXT
cat >squares.py <<'TEXT'
from threads_cluster import Cluster

with Cluster() as cluster:
    print(sum(cluster.map("work:square", range(1000), files=".")))
TEXT
expect "the sum of the squares" "$(python squares.py)" 332833500

step "a workflow with three steps"
cat >workflow.yaml <<'TEXT'
name: squares
actions:
  - action_id: numbers
    action_type: command
    command: [sh, -c, 'echo "[2, 3, 5]" > "$CLUSTER_RESULT"']
  - action_id: square
    action_type: command
    foreach: ${numbers.value}
    command: [sh, -c, 'echo $(($1 * $1)) > "$CLUSTER_RESULT"', square, "${item}"]
  - action_id: publish
    action_type: artifact_publish
    parameters: {name: squares, value: "${square.results}"}
TEXT
cluster workflow submit workflow.yaml --wait
workflow=$(cluster workflow list --json | grep -o '"workflow_id": *"[^"]*"' | cut -d'"' -f4)
cluster artifact fetch squares ~/published
expect "the published values" "$(grep -oE '"value": ?[0-9]+' ~/published/value.json | grep -oE '[0-9]+' | xargs)" "4 9 25"

step "a served model"
cp "$model" model.gguf
cluster serve model.gguf --name chat --wait
key=$(cluster token create program --scopes infer)
answer=$(ask_model)
[[ -n $answer ]] || fail "the model's answer is empty"

step "a colleague's token"
mkdir ~/anna
cluster token create anna --scopes read,submit,run >~/anna/token
as_anna cluster login "$url" <~/anna/token
expect "what anna's program prints" "$(as_anna cluster run --no-files -- echo hello)" hello
refuses as_anna cluster token list

step "stop"
cd ~/threads-cluster
stop
refuses cluster status

step "second start"
start

step "everything is still there"
cluster job "$job" | grep '^state *done ' || fail "the job is not done"
cluster result "$job" --fetch ~/counts-again --flat
diff -r ~/counts ~/counts-again
cluster artifact fetch squares ~/published-again
diff -r ~/published ~/published-again
cluster workflow status "$workflow" | grep '^state *done$' || fail "the workflow is not done"
expect "the model's answer" "$(ask_model)" "$answer"
expect "what anna's program prints" "$(as_anna cluster run --no-files -- echo hello)" hello

step "cleanup"
stop
./deploy-cluster.sh cleanup --local --yes 2>~/cleanup
cat ~/cleanup

step "nothing is left"
cd
! curl --silent "$url" || fail "a program answers at $url"
for process in /proc/[0-9]*; do
  folder=$(readlink "$process/cwd" 2>/dev/null || true)
  [[ $folder/ != "$checkout"/* ]] || fail "a process is left: $(tr '\0' ' ' <"$process/cmdline")"
done
! pgrep --full --list-full "$checkout" || fail "processes are left"
! grep -lsz "^THREADS_CLUSTER_RUN=.*@$checkout" /proc/[0-9]*/environ || fail "processes are left"
! grep -rs -e "$checkout" -e "$url" ~/.config || fail "the user's configuration names the cluster"
expect "the content of TMPDIR" "$(find "$TMPDIR" -mindepth 1)" ""
git -C "$checkout" status --porcelain --ignored | while read -r _ path; do
  grep -qF "$(sed -E 's|.*(__pycache__)/$|\1|; s|/$||' <<<"$path")" ~/cleanup || fail "cleanup left $path without saying so"
done
step ""
