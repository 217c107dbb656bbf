#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test-static.sh READELF PROGRAM: fails when PROGRAM has a dynamic section or an interpreter.
set -eu
out=$("$1" --wide --program-headers "$2")
case $out in
*LOAD*) ;;
*)
    echo "no program headers of $2" >&2
    exit 1
    ;;
esac
case $out in
*DYNAMIC* | *INTERP*)
    echo "$2 is dynamically linked" >&2
    exit 1
    ;;
esac
