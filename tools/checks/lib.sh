# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# For the scripts in tools/checks: each prints what is wrong, one line per place, and ends with 1 if
# there was anything. They run from the top of the source.

# The files of the source, one a line: what git would commit, or everything outside build folders.
source_files() {
    if [[ -e .git ]] && command -v git >/dev/null && git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
        git ls-files -co --exclude-standard | while IFS= read -r file; do
            [[ ! -f $file || -L $file ]] || printf '%s\n' "$file"
        done
    else
        find . -path ./.git -prune -o -path './build*' -prune -o -path ./.cache -prune -o -type f -printf '%P\n'
    fi | LC_ALL=C sort
}

c_files() { source_files | grep -E '^(src|tests|bench|tools)/.*\.[ch]$'; }

# Files that are scripts of this shell family, whatever they are called.
shell_files() {
    source_files | grep -Ev '^tests/corpus/' | while IFS= read -r file; do
        case $file in
        *.sh) printf '%s\n' "$file" ;;
        *.*) ;;
        *) ! head -c 40 "$file" | head -n 1 | grep -qaE '^#!.*(ba)?sh$' || printf '%s\n' "$file" ;;
        esac
    done
}
