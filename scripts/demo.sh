#!/bin/sh
# The main job on a checkpoint that Flink 2.3 wrote: look at it, plan, replicate through Spark, then the next one.
set -eu
cd "$(dirname "$0")/.."
job=55d11b0e36f1bfdaa08cb74d9bea9f76
rm -rf .demo && mkdir .demo && trap 'rm -rf .demo/dcA' EXIT
cp -R tests/data/corpus/2.3.0-rocks-incr .demo/dcA   # "data centre A": a stand-in for its storage
flags="--remap file:/srv/flink/datacenter/2.3.0-rocks-incr=.demo/dcA"
cpreplicate=.venv/bin/cpreplicate

step() { printf '\n== %s\n' "$1"; shift; echo "\$ cpreplicate $*"; "$cpreplicate" "$@"; }

step "What the checkpoint holds"                    inspect .demo/dcA/ckpt/$job/chk-6 $flags
step "What a sync would do"                         diff    .demo/dcA/ckpt/$job/chk-6 .demo/dcB $flags --output json
step "Replicate it, through Spark"                  sync    .demo/dcA/ckpt/$job/chk-6 .demo/dcB $flags --runner spark
step "Replicate the next one: only what changed"    sync    .demo/dcA/ckpt/$job/chk-7 .demo/dcB $flags --runner spark
step "Again: nothing to do, no JVM"                 sync    .demo/dcA/ckpt/$job/chk-7 .demo/dcB $flags --output json
mv .demo/dcA .demo/gone && rm -rf .demo/gone        # data centre A is lost
step "Prove that the replica stands alone"          verify  .demo/dcB/$job --content
