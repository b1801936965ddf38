# ./deploy-cluster.sh kubernetes and what follows, on a stub of kubectl: what is refused, what it would apply, what it runs.
# shellcheck disable=SC2016,SC2030,SC2031,SC2154  # each test is a subshell; setup and cluster set what is judged

REPOSITORY=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)

setup() {
  cd "$BATS_TEST_TMPDIR" || return
  mkdir -p bin fake checkout/jobs
  export FAKE=$PWD/fake PATH=$PWD/bin:$PATH START_SECONDS=3
  unset DEBUG KUBECONFIG CONTAINERD_ADDRESS
  cp -r "$REPOSITORY"/{deploy,k8s,prometheus,grafana,deploy-cluster.sh,docker-compose.yml} checkout/
  cp "$REPOSITORY/jobs/VERSION" checkout/jobs/
  install -m 0755 "$REPOSITORY/tests/bats/kubectl_stub.bash" bin/kubectl
  printf '#!/bin/bash\nexec /bin/sleep 0.05\n' >bin/sleep
  printf '#!/bin/bash\nprintf "docker %%s\\n" "$*" >>"$FAKE/calls"\n' >bin/docker
  chmod +x bin/sleep bin/docker
  echo 1.32.4 >fake/client
  echo here >fake/context
  echo true >fake/classes
  printf 'apps/v1\nautoscaling/v2\n' >fake/apis
  echo 'Deployment coordinator 3 3 3 3 1 1' >fake/rows
  cd checkout || return
}

cluster() { # cluster ARGUMENT...: $status, $out and $err
  status=0
  ./deploy-cluster.sh "$@" >../out 2>../err </dev/null || status=$?
  out=$(<../out)
  err=$(<../err)
}

exits() { [[ $status == "$1" ]] || broken "exit code $status instead of $1"; }

says() {
  local text
  for text in "$@"; do [[ $err == *"$text"* ]] || broken "stderr lacks: $text"; done
}

shows() {
  local text
  for text in "$@"; do [[ $out == *"$text"* ]] || broken "stdout lacks: $text"; done
}

called() {
  local text
  for text in "$@"; do grep -qF -- "$text" "$FAKE/calls" || broken "not called: $text"; done
}

changed_nothing() {
  ! grep -vE '^kubectl .*(version|current-context|--raw|kustomize|api-versions|auth can-i| get |logs)' "$FAKE/calls" || broken "that changes something"
}

wants() { # wants LINE...: of the throw-away kustomization
  local line
  for line in "$@"; do grep -qF -- "$line" "$FAKE/kustomization.yaml" || broken "the overlay lacks: $line"; done
}

broken() {
  printf '%s\n--- status %s\n--- stdout\n%s\n--- stderr\n%s\n--- calls\n' "$1" "$status" "$out" "$err"
  cat "$FAKE/calls" "$FAKE/kustomization.yaml" 2>/dev/null
  return 1
}

up() { # up N G OPTION...
  cluster kubernetes "$@"
  exits 0
  : >"$FAKE/calls"
}

# -- refusals ---------------------------------------------------------------------------------------------------------

@test "no kubectl, and one that is too old" {
  mkdir ../few
  for tool in bash env dirname sed awk grep mktemp rm cat tail head sort tr; do ln -s "$(command -v "$tool")" "../few/$tool"; done
  PATH=$BATS_TEST_TMPDIR/few cluster kubernetes 1
  exits 3
  says "the kubectl command is not installed"
  echo 1.20.2 >"$FAKE/client"
  cluster kubernetes 1
  exits 3
  says "kubectl 1.27 or later is required; the installed version is 1.20.2"
}

@test "no context, one that is unknown, one that does not answer, one that refuses" {
  rm "$FAKE/context"
  cluster kubernetes 1
  exits 3
  says "kubectl has no current context"
  printf -- '--raw\nerror: context "there" does not exist\n' >"$FAKE/refuse"
  cluster kubernetes 1 --context there
  exits 3
  says "kubectl has no context 'there'"
  printf -- '--raw\nUnable to connect to the server: dial tcp 10.0.0.1:6443: i/o timeout\n' >"$FAKE/refuse"
  cluster kubernetes 1 --context there
  exits 3
  says "the Kubernetes cluster of context there does not answer: Unable to connect"
  printf -- '--raw\nerror: You must be logged in to the server (Unauthorized)\n' >"$FAKE/refuse"
  cluster kubernetes 1 --context there
  exits 3
  says "rejects this user"
  changed_nothing
}

@test "a cluster that is slow to answer is waited for, and that is said" {
  up 3 0
  sed -i 's/^file() /[[ $words != *" get --raw "* ]] || command -p sleep 2\n&/' ../bin/kubectl
  QUIET_SECONDS=1 cluster status
  exits 0
  says "Waiting up to 30 s for the Kubernetes cluster of context here"
}

@test "what is deployed there and may not be read is no empty namespace" {
  up 3 0
  printf 'get configmap deployment\nError from server (Forbidden): configmaps "deployment" is forbidden\n' >"$FAKE/refuse"
  cluster status
  exits 3
  says "cannot read " ": Error from server (Forbidden)" "auth can-i --list --namespace threads-cluster"
}

@test "wrong numbers and options" {
  for arguments in "0" "3 4" "x" "1 2 3" "3 --nonsense" "3 --overlay nowhere" "3 --overlay ../x"; do
    # shellcheck disable=SC2086
    cluster kubernetes $arguments
    exits 2
  done
  changed_nothing
}

@test "names that Kubernetes or a registry would refuse later" {
  for name in "a b" "it's" 'x, y: z' Upper -a a- "$(printf 'a%.0s' {1..64})" ../a; do
    cluster kubernetes 1 --namespace "$name"
    exits 2
    says "a namespace must have up to 63 lowercase letters"
  done
  for tag in a/b a:b .a -a "a b" "$(printf 'a%.0s' {1..129})" 'x"y'; do
    cluster kubernetes 1 --tag "$tag"
    exits 2
    says "got '$tag'"
  done
  for registry in https://registry.example registry.example/Team "a b" a,b :5000 host:5000:1 host:x a//b; do
    cluster kubernetes 1 --registry "$registry"
    exits 2
    says "without https://; got '$registry'"
  done
  changed_nothing
  cluster kubernetes 1 --registry registry.example:5000/team_1/a.b --tag V1.2-Rc_3
  exits 0
  wants '{name: threads/web, newName: registry.example:5000/team_1/a.b/threads/web, newTag: "V1.2-Rc_3"}'
}

@test "what cannot be read is not taken for a first start" {
  up 5 0 --overlay prod
  for what in "get configmap deployment" "get secret passwords" "get namespace"; do
    printf '%s\nError from server: etcdserver: request timed out\n' "$what" >"$FAKE/refuse"
    cluster kubernetes
    exits 3
    says "cannot read " ": Error from server: etcdserver: request timed out"
    cluster cleanup --yes
    if [[ $what != *secret* ]]; then exits 3 && [[ -e .kubernetes ]]; else exits 0; fi
    [[ -e .kubernetes ]] || (rm "$FAKE/refuse" && up 5 0 --overlay prod)
    [[ $what == *secret* ]] || changed_nothing
  done
}

@test "a namespace that is going, and one that holds what others run" {
  echo namespace/made >"$FAKE/namespace"
  echo Terminating >"$FAKE/phase"
  cluster kubernetes 1
  exits 1
  says "is being deleted" "--output yaml"
  changed_nothing
  touch .kubernetes
  cluster cleanup --yes
  exits 0
  called "wait namespace/threads-cluster --for delete --timeout 300s"
  [[ ! -e .kubernetes ]] || broken "still remembered"
  : >"$FAKE/calls"
  echo Active >"$FAKE/phase"
  printf 'service/kubernetes\ndeployment.apps/theirs\n' >"$FAKE/others"
  cluster kubernetes 1
  exits 1
  says "contains other resources: service/kubernetes deployment.apps/theirs" "--namespace NAME"
  changed_nothing
  rm "$FAKE/others"
  up 1
  echo deployment.apps/theirs >"$FAKE/others"
  cluster cleanup --yes
  exits 1
  says "nothing was deleted: deployment.apps/theirs"
  changed_nothing
  printf 'daemonsets\nError from server (Forbidden): daemonsets.apps is forbidden\n' >"$FAKE/refuse"
  cluster cleanup --yes
  exits 3
  says "cannot read other workloads in namespace threads-cluster of context here: Error from server (Forbidden)"
  changed_nothing
  [[ -e .kubernetes ]]
}

@test "a start after one that was interrupted, and after an interrupted restore" {
  printf 'apply --server-side\nerror: interrupted\n' >"$FAKE/refuse"
  cluster kubernetes 4 0
  exits 1
  says "did not accept the manifests" "interrupted"
  before=$(<"$FAKE/passwords")
  rm "$FAKE/refuse"
  echo pod/redis-restore >"$FAKE/restoring"
  cluster kubernetes 4 0
  exits 0
  [[ $before == "$(<"$FAKE/passwords")" ]] || broken "other passwords"
  called "delete pod redis-restore --wait"
}

@test "a context with quotes and blanks in its name" {
  echo "my \"own\" cluster's" >"$FAKE/context"
  cluster kubernetes 1
  exits 0
  called "--context my \"own\" cluster's --namespace threads-cluster apply"
  echo elsewhere >"$FAKE/context"
  cluster status --json
  exits 0
  [[ $(python3 -c 'import json, sys; print(json.load(sys.stdin)["kubernetes"]["context"])' <<<"$out") == "my \"own\" cluster's" ]] || broken context
}

@test "a namespace is not removed in time" {
  up 1
  printf 'delete namespace\nerror: timed out waiting for the condition\n' >"$FAKE/refuse"
  cluster cleanup --yes
  exits 4
  says "still exists after 300 s" "--output yaml"
  [[ -e .kubernetes ]]
}

@test "a user without rights" {
  printf 'secrets\nnamespaces\n' >"$FAKE/cannot"
  cluster kubernetes 1
  exits 3
  says "cannot create secrets namespaces in namespace threads-cluster"
  changed_nothing
}

@test "a cluster that is too old, and one without storage" {
  echo v1 >"$FAKE/apis"
  cluster kubernetes 1
  exits 3
  says "does not serve: apps/v1" "Kubernetes 1.27 or later"
  echo apps/v1 >"$FAKE/apis"
  echo 1.26.15-gke.100 >"$FAKE/server"
  cluster kubernetes 1
  exits 3
  says "has version 1.26.15, which does not support unhealthyPodEvictionPolicy" "Kubernetes 1.27 or later"
  echo 1.27.0 >"$FAKE/server"
  echo '<no value>' >"$FAKE/classes"
  cluster kubernetes 1
  exits 3
  says "no default storage class"
  changed_nothing
}

@test "GPU workers without a device plugin, and more than there are GPUs" {
  printf '0\n0\n' >"$FAKE/gpus"
  cluster kubernetes 5 2
  exits 3
  says "no node offers nvidia.com/gpu" "./deploy-cluster.sh kubernetes 5 0"
  printf '1\n0\n' >"$FAKE/gpus"
  cluster kubernetes 5 2
  exits 3
  says "the nodes offer only 1 GPUs" "./deploy-cluster.sh kubernetes 5 1"
  changed_nothing
}

# -- what is applied --------------------------------------------------------------------------------------------------

@test "a first start: passwords once, counts and images in a throw-away overlay, and how to reach it" {
  echo 2 >"$FAKE/gpus"
  before=$(find k8s prometheus grafana -type f -exec sha256sum {} + | sort)
  cluster kubernetes 5 2 --registry registry.example/team/ --tag 9.9
  exits 0
  wants "namespace: threads-cluster" "resources: [../k8s/overlays/dev]" "components: [../k8s/components/gpu]" \
    "{name: cpu-workers, count: 3}" "{name: gpu-workers, count: 2}" "cluster_size=5" \
    '{name: threads/coordinator, newName: registry.example/team/threads/coordinator, newTag: "9.9"}'
  called "create namespace threads-cluster" "create secret generic passwords" "apply --server-side"
  says "3 CPU workers, 2 GPU workers" "port-forward service/load-balancer-service 8080:80"
  [[ $before == "$(find k8s prometheus grafana -type f -exec sha256sum {} + | sort)" ]] || broken "files were edited"
  [[ $(<.kubernetes) == $'CONTEXT=here\nNAMESPACE=threads-cluster' ]]
  token=$(sed -n 's/^cluster_token //p' "$FAKE/passwords" | base64 -d)
  [[ ${#token} -ge 48 ]] || broken "no token: $token"
  ! grep -qF "$token" ../out ../err "$FAKE/calls" || broken "shows the token"
}

@test "a second start keeps the passwords, and what is not given" {
  up 5 0 --registry registry.example
  before=$(<"$FAKE/passwords")
  cluster kubernetes
  exits 0
  wants "{name: cpu-workers, count: 5}" "newName: registry.example/threads/nginx"
  [[ $before == "$(<"$FAKE/passwords")" ]]
  ! grep -q 'threads-cluster create ' "$FAKE/calls" || broken "made anew"
}

@test "a password that was deleted is made once and kept" {
  up 3 0
  sed -i '/^secrets_key /d' "$FAKE/passwords"
  cluster kubernetes
  exits 0
  called "create secret generic passwords" "--dry-run=client"
  grep -q '^secrets_key ' "$FAKE/passwords"
  : >"$FAKE/calls"
  cluster kubernetes
  ! grep -q 'create secret generic' "$FAKE/calls" || broken "made anew"
}

@test "--dry-run changes nothing and prints what it would run" {
  cluster kubernetes 3 0 --dry-run --load
  exits 0
  shows "create namespace threads-cluster" "apply --server-side" "ctr --address /run/containerd/containerd.sock"
  changed_nothing
  [[ ! -e .kubernetes && ! -e $FAKE/passwords ]]
}

@test "--manifests writes the manifests to a private file" {
  cluster kubernetes 3 0 --dry-run --manifests new.yaml
  exits 0
  shows "apply --server-side --force-conflicts --filename $PWD/new.yaml"
  grep -q '^kind: Deployment' new.yaml
  [[ $(stat -c %a new.yaml) == 600 ]]
  for file in '' nowhere/new.yaml; do
    cluster kubernetes 3 0 --manifests "$file"
    exits 2
  done
  changed_nothing
}

@test "dry runs need no cluster and no kubectl" {
  mkdir ../few
  ln -s /usr/bin/* /bin/* ../few 2>/dev/null || true
  rm -f ../few/docker* ../few/kubectl
  printf -- '--raw\nUnable to connect to the server\n' >"$FAKE/refuse"
  path=$PATH
  while read -r command; do
    # shellcheck disable=SC2086
    PATH=$path cluster ${command%:*} --dry-run --context far
    exits 0
    says "No Kubernetes cluster answers"
    shows "kubectl --context far --namespace threads-cluster ${command#*:}"
    path=$BATS_TEST_TMPDIR/few # after the first command, there is no kubectl
  done <<'TEXT'
kubernetes 3 1 --load --registry registry.example:apply --server-side
scale 4:apply --server-side
report:exec --stdin COORDINATOR
backup ../new.tar.gz:exec --stdin redis-0
stop:scale statefulset redis --replicas 0
cleanup:delete deployments,replicasets,statefulsets --all
logs coordinator:logs --tail 200
TEXT
  says "so the manifests are neither built nor checked"
  PATH=$path cluster kubernetes 3 0 --dry-run --manifests new.yaml
  exits 3
  says "--manifests needs the kubectl command"
  changed_nothing
  [[ ! -e .kubernetes && ! -e $FAKE/passwords && ! -e ../new.tar.gz ]]
}

@test "another context and namespace" {
  cluster kubernetes 1 --context far --namespace mine
  exits 0
  called "kubectl --context far --namespace mine apply"
  wants "namespace: mine"
  cluster status
  called "kubectl --context far --namespace mine get deployments"
}

@test "an overlay that scales by itself is not told a number" {
  cluster kubernetes 4 --overlay prod
  exits 0
  says "has an autoscaler of CPU workers; the number 4 is ignored"
  wants "cluster_size=0"
  ! grep -q 'count:' "$FAKE/kustomization.yaml"
}

# What Docker says of an image stands in $FAKE/image/NAME.
images() { # images NAME...: Docker has built them, each with content of its own
  mkdir -p "$FAKE/image"
  for name in "$@"; do echo "[\"layer of $name\"] {}" >"$FAKE/image/$name"; done
  cat >../bin/docker <<'TEXT'
#!/bin/bash
printf 'docker %s\n' "$*" >>"$FAKE/calls"
name=${*: -1}
case $* in
  "image inspect --format {{.Id}}"*) echo "sha256:of-$name" ;;
  "image inspect --format"*) name=${name##*/} && cat "$FAKE/image/${name%%:*}" ;;
esac
TEXT
}

tag_of() { sed -nE "s/.*name: threads\/$1, .*newTag: \"(.*)\".*/\1/p" "$FAKE/kustomization.yaml"; } # tag_of NAME

@test "images are pushed to a registry" {
  images coordinator cpu-worker web nginx
  version=$(<jobs/VERSION)
  cluster kubernetes 1 --registry registry.example --load
  exits 0
  tag=$(tag_of coordinator)
  [[ $tag =~ ^$version-[0-9a-f]{12}$ ]] || broken "the tag says nothing of the content: $tag"
  called "docker compose --profile gpu --profile runner build coordinator" \
    "docker tag threads/coordinator:$version registry.example/threads/coordinator:$tag" \
    "docker push registry.example/threads/coordinator:$tag" "docker image rm registry.example/threads/coordinator:$tag"
  ! grep -q 'gpu-worker$' "$FAKE/calls"
}

@test "a second --load changes nothing, and one after a change of an image changes its pods alone" {
  images coordinator cpu-worker web nginx
  up 3 0 --load --registry registry.example
  before=$(<"$FAKE/kustomization.yaml")
  up 3 0 --load
  [[ $(<"$FAKE/kustomization.yaml") == "$before" ]] || broken "that would change something"
  web=$(tag_of web)
  echo '["another layer"] {}' >"$FAKE/image/web"
  up 3 0 --load
  [[ $(tag_of web) != "$web" ]] || broken "pods with the old pages would stay"
  diff <(grep -vE 'threads/web|tags=' <<<"$before") <(grep -vE 'threads/web|tags=' "$FAKE/kustomization.yaml") || broken "others change too"
}

@test "tags by content hold until there is another version, registry or tag" {
  images coordinator cpu-worker web nginx
  up 3 0 --load --registry registry.example
  tag=$(tag_of cpu-worker)
  cluster scale 5
  [[ $(tag_of cpu-worker) == "$tag" ]] || broken "scale changes the tag"
  up
  [[ $(tag_of cpu-worker) == "$tag" ]] || broken "a start without --load changes the tag"
  up 3 0 --load --tag 9.9
  up
  [[ $(tag_of cpu-worker) == 9.9 ]] || broken "not the tag that was given"
  up 3 0 --load
  [[ $(tag_of cpu-worker) == "$tag" ]] || broken "another tag for the same content"
  up 3 0 --registry other.example
  [[ $(tag_of cpu-worker) == "$(<jobs/VERSION)" ]] || broken "the other registry has no such tag"
  up 3 0 --load
  echo 99.0.0 >jobs/VERSION
  up
  [[ $(tag_of cpu-worker) == 99.0.0 ]] || broken "the old version's tag"
}

@test "a node of this machine gets the images that it lacks" {
  python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' "$FAKE/node"
  images coordinator cpu-worker web nginx
  printf '#!/bin/bash\nprintf "ctr %%s\\n" "$*" >>"$FAKE/calls"\n[[ $* != *" images list" ]] || cat "$FAKE/listed"\n' >../bin/ctr
  chmod +x ../bin/ctr
  echo REF TYPE DIGEST >"$FAKE/listed"
  CONTAINERD_ADDRESS=$FAKE/node cluster kubernetes 1 --load
  exits 0
  cpu=threads/cpu-worker:$(tag_of cpu-worker) web=threads/web:$(tag_of web)
  called "docker save threads/coordinator:$(tag_of coordinator) $cpu $web threads/nginx:$(tag_of nginx) valkey/valkey:8.1.8-trixie" \
    "ctr --address $FAKE/node --namespace k8s.io images import -"
  printf 'docker.io/%s manifest sha256:1\n' "threads/coordinator:$(tag_of coordinator)" "$cpu" "threads/nginx:$(tag_of nginx)" >>"$FAKE/listed"
  printf '%s manifest sha256:2\n' docker.io/valkey/valkey:8.1.8-trixie sha256:of-valkey/valkey:8.1.8-trixie >>"$FAKE/listed"
  : >"$FAKE/calls"
  CONTAINERD_ADDRESS=$FAKE/node cluster kubernetes 1 --load
  called "docker save $web"
  ! grep -qE "docker save .*(cpu-worker|valkey)" "$FAKE/calls" || broken "brings what is there"
  # Content says more than a name that others share.
  sed -i 's/^\(sha256:of-valkey.*\)2$/\13/' "$FAKE/listed"
  : >"$FAKE/calls"
  CONTAINERD_ADDRESS=$FAKE/node cluster kubernetes 1 --load
  called "docker save $web valkey/valkey:8.1.8-trixie"
}

@test "an image that the nodes cannot get" {
  echo 'Deployment coordinator 0 3 3 3 1 1' >"$FAKE/rows"
  echo 'coordinator-x ImagePullBackOff threads/coordinator:0.1.0 0 Back-off pulling image' >"$FAKE/reasons"
  cluster kubernetes 1
  exits 1
  says "cannot pull the image threads/coordinator:0.1.0" "--load"
}

@test "not ready in time" {
  echo 'Deployment coordinator 1 3 3 3 1 1' >"$FAKE/rows"
  cluster kubernetes 1
  exits 4
  says " s  waiting for: coordinator 1/3" "not everything is ready after 3 s: coordinator has 1 of 3"
  REPEAT_SECONDS=1 cluster kubernetes 1
  [[ $(grep -c "waiting for: coordinator 1/3" <<<"$err") -gt 1 ]] || broken "silent for as long as nothing changes"
}

# -- afterwards -------------------------------------------------------------------------------------------------------

@test "scale changes the number of workers" {
  up 3 0
  cluster scale 8
  exits 0
  wants "{name: cpu-workers, count: 8}" "cluster_size=8"
  says "8 CPU workers, 0 GPU workers"
  up 3 0 --overlay prod
  cluster scale 8
  exits 2
  says "has an autoscaler of CPU workers"
}

@test "nothing is deployed there" {
  for command in "scale 3" status logs stop report "backup ../x" "restore ../x"; do
    # shellcheck disable=SC2086
    cluster $command --context here
    [[ $status != 0 ]] || broken "$command did not fail"
  done
  changed_nothing
}

@test "status says what is ready, and fails when something is not" {
  up 3 0
  cluster status
  exits 0
  shows "context here, namespace threads-cluster" "coordinator      3/3"
  echo 'Deployment coordinator 1 3 3 3 1 1' >"$FAKE/rows"
  cluster status --json
  exits 1
  python3 -c 'import json, sys; print(json.load(sys.stdin)["kubernetes"]["workloads"]["coordinator"])' <<<"$out" | grep -q "'ready': 1"
  mv "$FAKE/rows" ../rows
  sed -i "/coordinator-x '/s/echo .*/exit 1 ;;/" ../bin/kubectl
  echo 'StatefulSet redis 0 1 1 1 1 1' | cat ../rows - >"$FAKE/rows"
  cluster status
  shows "The API does not answer, and redis is not ready" "kubectl describe pod redis-0 -n threads-cluster"
  echo 'Deployment coordinator 0 0 0 0 1 1' >"$FAKE/rows"
  cluster status
  shows "The cluster is stopped. Start it: ./deploy-cluster.sh kubernetes"
}

@test "logs of one workload" {
  up 3 0
  echo 'Deployment cpu-workers 3 3 3 3 1 1' >>"$FAKE/rows"
  cluster logs cpu-workers -f
  exits 0
  called "--ignore-errors --follow --selector app.kubernetes.io/name in (cpu-worker)"
  cluster logs nothing
  exits 2
  says "there is no service 'nothing'; there are: coordinator cpu-workers"
}

@test "stop takes writers first, Redis last" {
  up 3 0
  echo 'StatefulSet redis 1 1 1 1 1 1' >>"$FAKE/rows"
  cluster stop
  exits 0
  [[ $(grep -o ' scale .*' "$FAKE/calls") == $' scale deployment --selector app.kubernetes.io/part-of=threads-cluster --replicas 0\n scale statefulset redis --replicas 0' ]] || broken order
}

@test "stop ends runners while coordinators answer, so that no program is cut off" {
  up 3 0
  printf 'StatefulSet redis 1 1 1 1 1 1\nStatefulSet runner 2 2 2 2 1 1\n' >>"$FAKE/rows"
  cluster stop
  exits 0
  scaled=$(grep -oE ' scale .*| get pods --selector app.kubernetes.io/name[^ ]*' "$FAKE/calls")
  [[ $scaled == $' scale statefulset runner --replicas 0\n get pods --selector app.kubernetes.io/name=runner\n scale deployment '*$'\n scale statefulset redis --replicas 0\n'* ]] || broken "order: $scaled"
}

# -- runners ----------------------------------------------------------------------------------------------------------

token() { awk -v name="$1" '$1 == name { print $2 }' "$FAKE/runner-tokens" | base64 -d; } # of a runner, as the Secret has it

@test "each runner has a token, which a coordinator makes; one that has it keeps it" {
  echo 2 >"$FAKE/replicas"
  cluster kubernetes 3 0
  exits 0
  [[ $(token runner-0) == tc_id-of-runner-0_secret && $(token runner-1) == tc_id-of-runner-1_secret ]] || broken "no tokens"
  called "delete pod runner-0 runner-1 --ignore-not-found --wait=false"
  printf 'id-of-runner-0\nid-of-runner-1\n' >"$FAKE/known"
  before=$(<"$FAKE/runner-tokens")
  : >"$FAKE/calls"
  cluster kubernetes
  exits 0
  [[ $(<"$FAKE/runner-tokens") == "$before" ]] || broken "a token that counts was replaced"
  ! grep -q ' delete pod ' "$FAKE/calls" || broken "a runner that has its token is not started again"
}

@test "runners have the labels that WORKER_LABELS gives to hosts, and another token where those change" {
  echo 2 >"$FAKE/replicas"
  echo '"eu,trusted"' >"$FAKE/labels"
  up 3 0
  printf 'id-of-runner-0eu,trusted\nid-of-runner-1eu,trusted\n' >"$FAKE/known"
  cluster kubernetes
  exits 0
  called "python3 - runner-0 id-of-runner-0 eu,trusted" "python3 - runner-1 id-of-runner-1 eu,trusted"
  ! grep -q ' delete pod ' "$FAKE/calls" || broken "a runner that has its token is not started again"
  echo eu >"$FAKE/labels"
  cluster kubernetes
  exits 0
  called "python3 - runner-0 id-of-runner-0 eu" "delete pod runner-0 runner-1 --ignore-not-found --wait=false"
}

@test "one more runner, and one whose token was revoked" {
  echo 1 >"$FAKE/replicas"
  printf 'runner-0 %s\n' "$(printf tc_revoked_secret | base64)" >"$FAKE/runner-tokens"
  cluster kubernetes 3 0
  exits 0
  [[ $(token runner-0) == tc_id-of-runner-0_secret ]] || broken "the old one is still there"
  echo id-of-runner-0 >"$FAKE/known"
  echo 2 >"$FAKE/replicas"
  up 3 0
  [[ $(token runner-0) == tc_id-of-runner-0_secret && $(token runner-1) == tc_id-of-runner-1_secret ]] || broken "no tokens"
  cluster scale 4
  exits 0
}

@test "no token of a runner is printed, not even with DEBUG=1, and none is made by a dry run" {
  echo 1 >"$FAKE/replicas"
  cluster kubernetes 3 0 --dry-run
  exits 0
  says "a coordinator creates tokens of runners"
  changed_nothing
  DEBUG=1 cluster kubernetes 3 0
  exits 0
  [[ $out$err != *_secret* ]] || broken printed
  ! grep -q _secret "$FAKE/calls" || broken "on a command line"
}

@test "a coordinator that makes no token: said" {
  echo 1 >"$FAKE/replicas"
  printf 'python3 - runner-0\nthe API does not answer: HTTP Error 401: Unauthorized\n' >"$FAKE/refuse"
  cluster kubernetes 3 0
  exits 1
  says "cannot create a token for runner-0: the API does not answer: HTTP Error 401"
}

@test "a volume that an earlier cluster of this namespace left is used again, and no other" {
  cluster kubernetes 3 0
  exits 0
  ! grep -q persistentvolumes "$FAKE/calls" || broken "this overlay has none"
  printf 'cluster-storage threads-cluster\ntheirs other\n' >"$FAKE/left"
  cluster kubernetes 3 0
  exits 0
  says "volume cluster-storage belongs to an earlier cluster"
  [[ $(grep -o 'patch persistentvolume .*' "$FAKE/calls") == 'patch persistentvolume cluster-storage --type merge --patch {"spec": {"claimRef": null}}' ]] || broken "patched otherwise"
}

@test "without the component there are no tokens" {
  up 3 0
  ! grep -q runner "$FAKE/calls" || broken "runners"
}

@test "cleanup asks, and touches no namespace of others" {
  up 3 0
  cluster cleanup
  exits 2
  says "--yes"
  cluster cleanup --yes
  exits 0
  called "kubectl --context here delete namespace threads-cluster"
  says "Deleting namespace threads-cluster"
  [[ $(grep -o ' delete .*' "$FAKE/calls" | awk '{ print $2 }' | head -n 3 | paste -sd ' ') == "deployments,replicasets,statefulsets pods namespace" ]] || broken order
  [[ ! -e .kubernetes ]]
  echo namespace/theirs >"$FAKE/namespace"
  : >"$FAKE/calls"
  cluster cleanup --yes --namespace theirs
  exits 1
  says "does not contain a Threads Cluster"
  changed_nothing
}

@test "a backup, and its restore on a stopped Redis" {
  up 3 0
  cluster backup ../kept.tar.gz
  exits 0
  cmp -s "$FAKE/piped" deploy/docker/dump-redis.sh
  says "3 keys"
  echo 'StatefulSet redis 1 1 1 1 1 1' >>"$FAKE/rows"
  : >"$FAKE/calls"
  cluster restore ../kept.tar.gz --yes
  exits 0
  [[ $(<"$FAKE/piped") == 'REDIS0011 a dump' ]]
  says "Restored 3 keys."
  [[ $(grep -nE 'scale statefulset|exec --stdin redis-restore|apply --server-side' "$FAKE/calls" | sed -E 's/.* (scale|exec|apply) .*/\1/' | paste -sd ' ') == 'scale exec apply' ]] || broken order
  echo statefulset.apps/sentinel >"$FAKE/sentinel"
  cluster restore ../kept.tar.gz --yes
  exits 1
  says "Back to one Redis"
}

@test "--docker means containers, whatever is on Kubernetes" {
  up 3 0
  cluster stop --docker
  ! grep -q '^kubectl' "$FAKE/calls" || broken "asked Kubernetes"
}
