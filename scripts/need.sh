#!/bin/sh
# Installs what is named, where it is missing, through the system's package manager: java (17 or later), maven,
# promtool (with Prometheus), node_exporter, zsh, fish, chromium, groff, mandoc, kdc (MIT Kerberos: server and client),
# spnego (what compiles the extra), go, npm, venv, network (ip, iptables, cc).
set -eu

has_java() { command -v java >/dev/null && [ "$(java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p')" -ge 17 ]; }
has_maven() { command -v mvn >/dev/null && command -v javac >/dev/null; }
has_promtool() { command -v promtool >/dev/null && command -v prometheus >/dev/null; }
has_node_exporter() { command -v prometheus-node-exporter >/dev/null || command -v node_exporter >/dev/null; }
has() { command -v "$1" >/dev/null; }
has_kdc() { PATH=$PATH:/usr/sbin; command -v krb5kdc >/dev/null && command -v kinit >/dev/null; }
has_headers() { python3 -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))'; }
has_venv() { python3 -c 'import ensurepip' 2>/dev/null; }

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

install() {
    if command -v apt-get >/dev/null; then as_root apt-get update -q && as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "$1"
    elif command -v dnf >/dev/null; then as_root dnf install -qy "$2"
    elif command -v brew >/dev/null; then brew install "$3"
    else echo "install $1 with this system's package manager, then run again" >&2; exit 1
    fi
}

case "$1" in
    java) has_java || install openjdk-17-jre-headless java-17-openjdk-headless openjdk@17 ;;
    maven) has_maven || { install openjdk-17-jdk-headless java-17-openjdk-devel openjdk@17; install maven maven maven; } ;;
    promtool) has_promtool || install prometheus prometheus prometheus ;;
    node_exporter) has_node_exporter || install prometheus-node-exporter golang-github-prometheus-node-exporter node_exporter ;;
    zsh | fish | chromium | mandoc) has "$1" || install "$1" "$1" "$1" ;;
    groff) has groff || install groff-base groff-base groff ;;
    kdc) has_kdc || { install krb5-kdc krb5-server krb5; install krb5-admin-server krb5-server krb5; install krb5-user krb5-workstation krb5; } ;;
    spnego)
        has krb5-config || install libkrb5-dev krb5-devel krb5
        has cc || install gcc gcc gcc
        has_headers || install python3-dev python3-devel python3 ;;
    go) command -v go >/dev/null || install golang-go golang go ;;
    npm) command -v npm >/dev/null || install npm npm node ;;
    network)
        has ip || install iproute2 iproute iproute2mac
        has iptables || install iptables iptables-nft iptables
        has cc || install gcc gcc gcc ;;
    venv) has_venv || install python3-venv python3 python3 ;;
    *) echo "need.sh: unknown: $1" >&2; exit 2 ;;
esac
