# .env: what docker and scale write there, and that they leave everything else alone.
# shellcheck disable=SC2016,SC2030,SC2031,SC2154  # each test is a subshell; bench.bash sets status, out and err
load bench

mine() { # a user's own .env
  cat <<'ENV'
# my settings, with an umlaut: ü
export LOG_LEVEL=debug
  RESULT_TTL = 86400   # a day
QUOTED="a # b"
#CPU_WORKERS=9

CPU_WORKERS=7
WORKER_THREADS=3
ENV
  cat .env
}

@test "a user's lines stay byte for byte, in their places" {
  mine >../mine && cp ../mine .env
  cluster docker 2 0
  exits 0
  has_line CPU_WORKERS=2 GPU_WORKERS=0 CLUSTER_SIZE=2 WORKER_THREADS=3
  diff <(grep -vE '^(CPU_WORKERS|GPU_WORKERS|CLUSTER_SIZE)=' ../mine) <(grep -vE '^(CPU_WORKERS|GPU_WORKERS|CLUSTER_SIZE)=' .env)
  [[ $(sed -n 7p .env) == CPU_WORKERS=2 ]]
}

@test "a last line without its end, and lines that end as on Windows" {
  printf 'LOG_LEVEL=debug\r\nRESULT_TTL=86400' >>.env
  cluster docker 2 0
  exits 0
  has_line $'LOG_LEVEL=debug\r' RESULT_TTL=86400 CPU_WORKERS=2
}

@test "a new .env says where all settings are described" {
  rm .env
  cluster docker 2 0 --dry-run
  [[ ! -e .env ]]
  HTTP_PORT=7010 COORDINATOR_PORT=7011 GRAFANA_PORT=7012 PROMETHEUS_PORT=7013 cluster docker 2 0
  exits 0
  [[ $(head -n 1 .env) == *.env.example* ]]
  has_line CPU_WORKERS=2
}

@test "its mode is kept, and a link stays a link" {
  chmod 600 .env
  mv .env ../real
  ln -s ../real .env
  cluster docker 2 0
  exits 0
  [[ -L .env && $(stat -c %a ../real) == 600 ]]
  has_line CPU_WORKERS=2
  [[ $(cd .. && echo real*) == real && $(echo .env*) == .env ]] || broken "a file was left behind"
}

@test "lanes: cores shared by CPU workers, until the user sets a number" {
  cluster docker 3 0
  has_line WORKER_THREADS=2
  cluster docker 8 0
  has_line WORKER_THREADS=1
  cluster docker 20 0
  has_line WORKER_THREADS=1
  says "20 CPU workers on 8 cores"
  cluster docker 1 0
  has_line WORKER_THREADS=0
  [[ $(grep -c WORKER_THREADS= .env) == 1 ]]
  sed -i '/Set by .\/deploy-cluster.sh/d; s/^WORKER_THREADS=.*/WORKER_THREADS=5/' .env
  cluster docker 4 0
  has_line WORKER_THREADS=5
}

@test "with a limit of cores for each worker, that decides" {
  printf 'CPU_WORKER_CPUS=1.5\n' >>.env
  cluster docker 4 0
  has_line WORKER_THREADS=0
}

@test "a variable of the environment does not win over the counts, and that is said" {
  CPU_WORKERS=9 cluster docker 2 0
  exits 0
  says "environment variable CPU_WORKERS is ignored"
  [[ $(of_engine "len([c for c in s['containers'] if c['service'] == 'cpu-worker'])") == 2 ]]
}

@test "a count in .env that is no number" {
  printf 'CPU_WORKERS=many\n' >>.env
  cluster docker
  exits 2
  says "CPU_WORKERS in .env needs a number from 0 to 10000; got 'many'"
}
