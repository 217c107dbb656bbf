# SPDX-License-Identifier: Apache-2.0
"""The Prometheus text format, version 0.0.4, read as strictly as it is written down, and what a dashboard asks of it."""
import json
import re

NAME = re.compile(r'[a-zA-Z_:][a-zA-Z0-9_:]*')
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')
IDS = re.compile(r'\b[a-z][0-9a-z]{19}\b')
TYPES = ('counter', 'gauge', 'histogram')
SUFFIXES = ('_bucket', '_sum', '_count')


class Bad(Exception):
    pass


def need(condition, what):
    if not condition:
        raise Bad(what)


class Family:
    def __init__(self, name, help_text):
        self.name, self.help, self.type = name, help_text, None
        self.samples = {}  # (name, labels as a sorted tuple): value


def sample(line):
    m = NAME.match(line)
    need(m, f'no name: {line!r}')
    name, rest, labels = m.group(), line[m.end():], []
    if rest.startswith('{'):
        rest = rest[1:]
        while not rest.startswith('}'):
            m = LABEL.match(rest)
            need(m, f'not a label: {line!r}')
            labels.append(m.groups())
            rest = rest[m.end():]
            need(rest[:1] in ',}', f'labels: {line!r}')
            rest = rest[1:] if rest.startswith(',') else rest
        rest = rest[1:]
    need(re.fullmatch(r' (?:[+-]?[0-9.]+(?:e[+-]?[0-9]+)?|[+-]Inf|NaN)', rest), f'one space and a number: {line!r}')
    need(len(dict(labels)) == len(labels), f'a label twice: {line!r}')
    return name, tuple(sorted(labels)), float(rest[1:])


def check_histogram(f):
    series = {}
    for (name, labels), value in f.samples.items():
        le = [v for k, v in labels if k == 'le']
        key = tuple(kv for kv in labels if kv[0] != 'le')
        suffix = name[len(f.name):]
        need(suffix in SUFFIXES and (suffix == '_bucket') == bool(le), f'no part of a histogram: {name}{labels}')
        series.setdefault(key, {}).setdefault(suffix, []).append((float(le[0]) if le else 0, value))
    for key, parts in series.items():
        need(set(parts) == set(SUFFIXES), f'{f.name}{key} lacks a part')
        bounds = [b for b, _ in parts['_bucket']]
        counts = [c for _, c in parts['_bucket']]
        need(bounds == sorted(set(bounds)) and bounds[-1] == float('inf'), f'{f.name}{key}: bounds {bounds}')
        need(counts == sorted(counts), f'{f.name}{key}: buckets are not cumulative')
        need(counts[-1] == parts['_count'][0][1], f'{f.name}{key}: +Inf is not the count')
        need(parts['_sum'][0][1] >= 0, f'{f.name}{key}: a sum below 0')


def check_family(f):
    need(f.type, f'{f.name} has no type')
    need(f.help.strip(), f'{f.name} has no help')
    need((f.type == 'counter') == f.name.endswith('_total'), f'{f.name} is a {f.type}')
    if f.type == 'histogram':
        check_histogram(f)
    for (name, labels), value in f.samples.items():
        need(f.type == 'gauge' or value >= 0, f'{name}{labels} is {value}')
        for _, text in labels:
            need(not IDS.search(text), f'an id as a label: {name}{labels}')


def parse(text):
    """{name: Family}; Bad says what is wrong."""
    need(text == '' or text.endswith('\n'), 'the last line has no end')
    families, now = {}, None
    for line in text.splitlines():
        if line.startswith('# HELP '):
            name, _, about = line[7:].partition(' ')
            need(NAME.fullmatch(name) and name not in families, f'{name} comes twice')
            need(not re.search(r'\\(?![\\n])', about.replace('\\\\', '')), f'an escape in {line!r}')
            now = families[name] = Family(name, about)
        elif line.startswith('# TYPE '):
            name, _, kind = line[7:].partition(' ')
            need(now and now.name == name and not now.type and not now.samples, f'out of place: {line!r}')
            need(kind in TYPES, f'type {kind}')
            now.type = kind
        else:
            name, labels, value = sample(line)
            need(now and now.type, f'before its type: {line!r}')
            own = {now.name + s for s in SUFFIXES} if now.type == 'histogram' else {now.name}
            need(name in own, f'{name} stands among {now.name}')
            need((name, labels) not in now.samples, f'twice: {line!r}')
            now.samples[name, labels] = value
    for f in families.values():
        check_family(f)
    return families


def value(families, name, **labels):
    """The sum of the samples of that name with these labels."""
    base = re.sub(r'_(bucket|sum|count)$', '', name)
    f = families.get(name) or families.get(base)
    need(f, f'there is no {name}')
    return sum(v for (n, have), v in f.samples.items() if n == name and set(labels.items()) <= set(have))


def exprs(dashboard):
    found = []

    def walk(node):
        if isinstance(node, dict):
            if isinstance(node.get('expr'), str):
                found.append(node['expr'])
            for v in node.values():
                walk(v)
        elif isinstance(node, list):
            for v in node:
                walk(v)
    walk(dashboard)
    return found


def asked_for(path):
    """{metric name: set of label names} of a dashboard's expressions."""
    asked = {}
    for expr in exprs(json.load(open(path))):
        for name, selector in re.findall(r'\b(space_[a-z0-9_]+)(\{[^}]*\})?', expr):
            labels = asked.setdefault(name, set())
            labels.update(re.findall(r'([a-z_]+)\s*[=!]', selector or ''))
            for by in re.findall(r'by\s*\(([^)]*)\)', expr):
                labels.update(x.strip() for x in by.split(','))
    return asked


def missing(path, families):
    """What a dashboard asks for and a scrape does not have: names, and labels of those that have samples."""
    out = []
    for name, labels in sorted(asked_for(path).items()):
        base = re.sub(r'_(bucket|sum|count)$', '', name)
        f = families.get(name) or (families[base] if base in families and families[base].type == 'histogram' else None)
        if not f or (f.type == 'histogram') != (f.name != name):
            out.append(name)
            continue
        have = {k for (_, pairs) in f.samples for k, _ in pairs} | {'instance', 'job'}
        if f.samples and not labels <= have:
            out.append(f'{name}: {sorted(labels - have)}')
    return out
