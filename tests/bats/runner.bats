# The profile runner: a runner of programs, which starts once a coordinator has made its token.
# shellcheck disable=SC2016,SC2030,SC2031,SC2154  # each test is a subshell; bench.bash sets status, out and err
load bench

runners() { # runners STATES: as Python lists them
  [[ $(of_engine "[c['state'] for c in s['containers'] if c['service'].startswith('runner')]") == "$1" ]] || broken "not $1"
}

@test "off unless asked for" {
  up 1
  runners "[]"
  ! grep -qE 'runner|AUTH' .env
  [[ -z $(<secrets/runner_token) && -z $(<secrets/cluster_token) ]]
}

@test "--runner: every call needs a token from now on, the runner has its own, and the first program is said" {
  cluster docker 2 0 --runner
  exits 0
  has_line CPU_WORKERS=2 CLUSTER_SIZE=3 COMPOSE_PROFILES=runner AUTH=required
  [[ $(tr -d '\n' <secrets/cluster_token | wc -c) -ge 32 ]]
  [[ $(<secrets/runner_token) == tc_0000000000_secret* ]]
  runners "['running', 'running']"
  [[ $(of_engine "s['before_token']") == "[]" ]] || broken "it started before there was a token"
  says 'CLUSTER_TOKEN=$(cat secrets/cluster_token) cluster run -- echo hello'
}

@test "--runner with other profiles, and a later start without the word keeps it and its token" {
  printf 'COMPOSE_PROFILES=dcgm\n' >>.env
  cluster docker 1 --runner
  exits 0
  has_line COMPOSE_PROFILES=dcgm,runner
  token=$(<secrets/runner_token)
  forget
  cluster docker 2 0
  exits 0
  has_line COMPOSE_PROFILES=dcgm,runner CLUSTER_SIZE=3
  not_called force-recreate
  [[ $(<secrets/runner_token) == "$token" ]]
  runners "['running', 'running']"
}

@test "a token that the cluster does not know any more is replaced, and who has it starts again" {
  cluster docker 1 0 --runner
  printf 'tc_aaaaaaaaaa_of-another-cluster-0123456789\n' >secrets/runner_token
  forget
  cluster docker
  exits 0
  called "--force-recreate runner-token runner"
  [[ $(<secrets/runner_token) == tc_0000000001_secret* ]]
}

@test "the runner has the labels that WORKER_LABELS gives to hosts, and another token where those change" {
  cluster docker 1 0 --runner
  token=$(<secrets/runner_token)
  printf 'WORKER_LABELS=eu,trusted\n' >>.env
  cluster docker
  exits 0
  called "python3 - runner-1 0000000000 eu,trusted" "--force-recreate runner-token runner"
  [[ $(<secrets/runner_token) != "$token" ]]
  forget
  cluster docker
  exits 0
  not_called force-recreate
}

@test "no token of the runner is printed, not even with DEBUG=1" {
  DEBUG=1 cluster docker 1 0 --runner
  exits 0
  [[ $out$err != *"$(<secrets/runner_token)"* && $out$err != *"$(<secrets/cluster_token)"* ]] || broken "printed"
  not_called "$(<secrets/runner_token)" "$(<secrets/cluster_token)"
}

@test "a coordinator that makes no token: said, and no runner starts" {
  engine refuse '[["runner-1", 1, "the API does not answer: HTTP Error 401: Unauthorized"]]'
  cluster docker 1 0 --runner
  exits 1
  says "cannot create a token for the runner: the API does not answer: HTTP Error 401"
  runners "[]"
}

@test "without the profile the runner goes" {
  cluster docker 1 0 --runner
  sed -i /COMPOSE_PROFILES/d .env
  cluster docker
  exits 0
  called "docker compose --profile runner rm --stop --force runner-token runner"
  runners "[]"
  has_line CLUSTER_SIZE=1 AUTH=required
}

@test "a dry run says what it would do" {
  cluster docker 1 0 --runner --dry-run
  exits 0
  shows "COMPOSE_PROFILES=runner" "AUTH=required" "deploy/secrets.sh --token" "300 runner-token runner"
  says "a coordinator creates secrets/runner_token"
  changed_nothing
}

@test "a word that is no option" {
  cluster docker 1 --runer
  exits 2
  says "docker has no option '--runer'"
}
