#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# embed.sh INPUT OUTPUT: writes a file as a C array, a few bytes a line, with POSIX tools only.
set -eu
{
    echo '/* SPDX-License-Identifier: Apache-2.0 */'
    echo '#include "gateway/openapi.h"'
    echo
    echo 'const unsigned char openapi_text[] = {'
    od -An -v -tu1 "$1" | sed 's/[[:space:]]\{1,\}/ /g; s/ \([0-9]\{1,\}\)/\1,/g'
    echo '};'
    echo 'const size_t openapi_text_len = sizeof(openapi_text);'
} >"$2"
