# SPDX-License-Identifier: Apache-2.0
"""The services' man pages against what the services themselves print for --help: options and usual values."""
import os
import re
import subprocess
import sys

TOP = os.environ.get("SPACE_SOURCE") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
UNUSUAL = re.compile(r"[ ,:;]")  # a usual value is one word; other brackets are remarks


def plain(text):
    return re.sub(r"\\f[BIRP]|\\&", "", text).replace("\\-", "-").replace("\\(aq", "'")


def page_options(text):
    """option -> its paragraph."""
    found = {}
    for part in re.split(r"(?m)^\.TP\n", text)[1:]:
        part = re.split(r"(?m)^\.SH", part)[0]
        head, _, body = part.partition("\n")
        m = re.match(r'\.BI? --([a-z0-9-]+)(?: "? ?\S+"?)?$', plain(head))
        if m:
            words = [re.sub(r"^\.[BIR]+ ", "", line) for line in plain(body).split("\n")]
            found[m.group(1)] = re.sub(r"([(]) | ([),.;])|\"", r"\1\2", " ".join(words))
    return found


def help_options(text):
    """option -> its usual value, or None."""
    found = {}
    for line in text.split("\n"):
        if not line.startswith("  "):
            continue
        names = re.findall(r"--([a-z0-9-]+)", line.split("  ", 2)[1] if line.startswith("  --") else line)
        usual = re.findall(r"\(([^()]+)\)", line)
        for name in names:
            found[name] = usual[-1] if usual and len(names) == 1 and not UNUSUAL.search(usual[-1]) else None
    return found


def problems(program):
    name = os.path.basename(program)
    path = os.path.join(TOP, "man", name + ".8")
    if not os.path.exists(path):
        return ["there is no page man/%s.8" % name]
    with open(path, encoding="utf-8") as f:
        text = f.read()
    shown = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
    page, table = page_options(text), help_options(shown)
    out = []
    if len(table) < 4:
        out.append("--help cannot be read: %r" % shown)
    if sorted(page) != sorted(table):
        out.append("the page has %s, --help has %s" % (sorted(set(page) - set(table)), sorted(set(table) - set(page))))
    for option, usual in table.items():
        if usual and usual not in page.get(option, ""):
            out.append("--%s: %r is not in %r" % (option, usual, page.get(option)))
    if ".TH %s 8 " % name.upper() not in text:
        out.append("its title is another one")
    return out


failed = 0
print("1..%d" % len(sys.argv[1:]))
for n, program in enumerate(sys.argv[1:], 1):
    bad = problems(program)
    print("\n".join("# " + b for b in bad) + ("\n" if bad else "") + "%sok %d - %s" % ("not " if bad else "", n,
          os.path.basename(program)))
    failed += bool(bad)
sys.exit(1 if failed else 0)
