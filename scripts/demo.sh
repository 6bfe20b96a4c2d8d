#!/bin/sh
# The main job on a checkpoint that Flink 2.3 wrote: look at it, plan, replicate through Spark, then the next one.
set -eu
cd "$(dirname "$0")/.."
cpreplicate=$PWD/.venv/bin/cpreplicate
rm -rf .demo && mkdir .demo
mkdir .demo/dcA && cp -R tests/data/corpus/2.3.0-rocks-incr .demo/dcA/flink   # "data centre A": a stand-in for its storage
mv .demo/dcA/flink/ckpt .demo/dcA/flink/checkpoints   # Flink's own directory
cd .demo
job=55d11b0e36f1bfdaa08cb74d9bea9f76
source=dcA/flink/checkpoints/$job
replicas=dcB/flink/replicas   # TARGET_ROOT: only cpreplicate writes there, beside Flink's dcB/flink/checkpoints
remap="--remap file:/srv/flink/datacenter/2.3.0-rocks-incr/ckpt=dcA/flink/checkpoints"   # where Flink wrote it

step() { printf '\n== %s\n' "$1"; }
run() { "$cpreplicate" "$@" >out 2>err || { cat err >&2; exit 1; }; }   # its narration is shown if it fails
brief() { grep -E '^(copy|keep|delete|paths|result|    flink) ' out; }

step "inspect: what the first checkpoint holds"
run inspect $source/chk-6 $remap && cat out
step "diff: what a sync would do"
run diff $source/chk-6 $replicas $remap && grep -E '^(copy|keep|delete|result) {5}' out
step "sync: replicate it, through Spark"
run sync $source/chk-6 $replicas $remap --runner spark && brief
step "sync: the next checkpoint, only what changed"
run sync $source/chk-7 $replicas $remap --runner spark && brief
step "sync: again, nothing to do and no JVM"
run sync $source/chk-7 $replicas $remap && cat out
rm -rf dcA
step "verify: data centre A is lost, the replica stands alone"
run verify $replicas/$job --content && cat out
