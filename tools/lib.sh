# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# What ./up, ./check and the scripts in tools/ share: messages, timed steps, retries, what this
# machine is. Sourced, never run. Callers have set -euo pipefail and have set `me` to their name.

# One line for people, on stderr, so that stdout stays free for results.
say() { printf '%s\n' "$*" >&2; }
# shellcheck disable=SC2154 # me: see above
warn() { printf '%s: warning: %s\n' "$me" "$*" >&2; }
# shellcheck disable=SC2154 # me: see above
die() {
    printf '%s: %s\n' "$me" "$*" >&2
    exit 1
}

# Milliseconds since some fixed point; for differences only.
now_ms() {
    local up
    read -r up _ </proc/uptime
    up=${up/./}
    printf '%s\n' "${up}0"
}

# 12345 -> 12.3 s
ms_text() { printf '%d.%d s' $(($1 / 1000)) $((($1 % 1000) / 100)); }

# Runs a command up to N times with a growing pause; for what depends on a network.
retry() {
    local tries=$1 n=1
    shift
    until "$@"; do
        if ((n >= tries)); then
            return 1
        fi
        warn "attempt $n of $tries failed, trying again in $((n * 2)) s: $*"
        sleep $((n * 2))
        n=$((n + 1))
    done
}

# Sets OS_ID, OS_VERSION, OS_CODENAME and OS (such as debian-12) from os-release.
os_detect() {
    local file=/etc/os-release
    [[ -r $file ]] || file=/usr/lib/os-release
    [[ -r $file ]] || die "there is no os-release file; SPACE runs on Debian 12, Debian 13 and Ubuntu 24.04"
    # shellcheck source=/dev/null
    OS_ID=$(. "$file" && printf '%s' "${ID:-unknown}")
    # shellcheck source=/dev/null
    OS_VERSION=$(. "$file" && printf '%s' "${VERSION_ID:-}")
    # shellcheck source=/dev/null
    OS_CODENAME=$(. "$file" && printf '%s' "${VERSION_CODENAME:-}")
    OS=$OS_ID-$OS_VERSION
    export OS_ID OS_VERSION OS_CODENAME OS
}

os_supported() {
    case $OS in
    debian-12 | debian-13 | ubuntu-24.04) return 0 ;;
    *) return 1 ;;
    esac
}
