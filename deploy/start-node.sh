#!/bin/sh
# Starts one node of a cluster whose nodes share a file: its number is $NODE_NUMBER, or stands behind the last dash of
# the host's name, as Kubernetes gives them (wukongs-2). $CLUSTER_FILE has everything but the number.
set -eu
file=${CLUSTER_FILE:-/etc/wukongs/cluster.toml}
host=${HOSTNAME:-$(hostname)}
number=${NODE_NUMBER:-${host##*-}}
own=$(mktemp -d)/node.toml
{ echo "number = $number"; cat "$file"; } >"$own"
exec wukongs node --config "$own"
