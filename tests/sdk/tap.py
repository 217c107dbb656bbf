# SPDX-License-Identifier: Apache-2.0
#
# TAP for the programs in Python: @case before each, main() after the last.
import sys
import time
import traceback

DEADLINE_S = 120
_cases = []


def case(fn):
    _cases.append(fn)


def until(look, what):
    end = time.monotonic() + DEADLINE_S
    while not (found := look()):
        assert time.monotonic() < end, f'{what} does not come true'
        time.sleep(0.05)
    return found


def fails(kind, fn):
    try:
        value = fn()
    except kind as error:
        return error
    raise AssertionError(f'{kind.__name__} expected, got {value!r}')


def main():
    failed = 0
    for n, fn in enumerate(_cases, 1):
        try:
            fn()
            print(f'ok {n} - {fn.__name__}', flush=True)
        except BaseException:
            failed += 1
            print(f'not ok {n} - {fn.__name__}', flush=True)
            print('\n'.join('# ' + line for line in traceback.format_exc().splitlines()), flush=True)
    print(f'1..{len(_cases)}')
    sys.exit(failed > 0)
