#!/bin/sh
# Installs the object stores of the tests into .stores, where they are missing: versitygw and fake-gcs-server
# by Go, Azurite by npm. The builds take about five minutes, once.
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)
stores=$here/.stores
versitygw=v1.8.0 fake_gcs_server=v1.56.1 azurite=3.35.0

for program in go npm; do
    command -v $program >/dev/null || sh "$here/scripts/need.sh" $program
done
mkdir -p "$stores/bin"
[ -x "$stores/bin/versitygw" ] || GOBIN="$stores/bin" go install github.com/versity/versitygw/cmd/versitygw@$versitygw
[ -x "$stores/bin/fake-gcs-server" ] || GOBIN="$stores/bin" go install github.com/fsouza/fake-gcs-server@$fake_gcs_server
[ -x "$stores/node_modules/.bin/azurite-blob" ] || npm install --silent --no-audit --no-fund --prefix "$stores" azurite@$azurite
