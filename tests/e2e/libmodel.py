# SPDX-License-Identifier: Apache-2.0
#
# Sandboxes beside a model of what they must be: which files with which contents, which commands run, which snapshots
# there are and how they hang together, which state. Operations change both; verify() compares them. Everything goes
# through the public API, so that what the gateway believes is compared, too.
#
# A choice is made from the random numbers and the model alone, so that a seed repeats a run as far as the outcome of
# operations that a kill has interrupted allows: those may have happened or not, and the model follows what is found,
# but only what is allowed.
from lib import *

KILLS_MAX = 3  # a sandbox whose machine ends more often in ten minutes is left failed, and that is right
SNAPSHOTS_MAX = 12
FILES = [f'f{i}' for i in range(6)]
NET_ERRORS = (OSError, http.client.HTTPException)


class Snap:
    """A snapshot, and what was there when it was taken."""

    def __init__(self, sid, kind, parent, files, commands):
        self.id = sid
        self.kind = kind
        self.parent = parent  # a Snap or None
        self.files = dict(files)
        self.commands = set(commands) if kind == 'full' else set()


class Life:
    """One sandbox and what it must be."""

    def __init__(self, sid, policy):
        self.box = Sandbox(sid)
        self.id = sid
        self.policy = policy
        self.state = 'running'
        self.files = {}
        self.commands = set()  # ids of those that run
        self.snaps = []  # oldest first
        self.now = None  # the Snap that the present came after
        self.kills = 0

    def __repr__(self):
        return self.id[:6]

    def path(self, rest=''):
        return f'/v1/sandboxes/{self.id}{rest}'

    # What the model knows of snapshots.
    def listed(self):
        return api.get(self.path('/snapshots'))['snapshots']

    def new_snapshots(self):
        known = {s.id for s in self.snaps}
        return [s for s in self.listed()[::-1] if s['id'] not in known]

    def add(self, shown, files=None, commands=None):
        snap = Snap(shown['id'], shown['kind'], self.now, self.files if files is None else files,
                    self.commands if commands is None else commands)
        self.snaps.append(snap)
        self.now = snap
        return snap

    def newest_full(self):
        at = self.now
        while at and at.kind != 'full':
            at = at.parent
        return at

    def go_to(self, snap):
        self.files = dict(snap.files)
        self.commands = set(snap.commands)
        self.now = snap

    def cold(self):
        self.commands = set()

    def own(self):
        """Snapshots that were taken for a command, by policy, since we last looked."""
        if self.policy.get('before_commands') == 'disk':
            for shown in self.new_snapshots():
                same(shown['made_by'], 'command', f'{self}: made by')
                self.add(shown)

    # Operations.
    def write(self, rng):
        name = rng.choice(FILES)
        data = rng.randbytes(rng.choice((0, 10, 5000, 200000)))
        self.box.put(f'/home/user/{name}', data)
        self.files[name] = sha(data)

    def remove(self, rng):
        name = rng.choice(sorted(self.files))
        r = api.post(self.path('/run'), {'shell': f'rm /home/user/{name} && sync', 'timeout_ms': 60000})
        same(r['exit_code'], 0, f'{self}: rm')
        self.own()
        del self.files[name]

    def start_command(self, rng):
        c = self.box.start('sleep 100000')
        self.own()
        self.commands.add(c['id'])

    def snapshot(self, rng):
        kind = rng.choice(('disk', 'full')) if self.state != 'stopped' else 'disk'
        self.add(api.post(self.path('/snapshots'), {'kind': kind}))

    def delete_snapshot(self, rng):
        snap = rng.choice(self.snaps)
        api.delete(self.path(f'/snapshots/{snap.id}'))
        self.snaps.remove(snap)
        for s in self.snaps:
            if s.parent is snap:
                s.parent = snap.parent
        if self.now is snap:
            self.now = snap.parent

    def rollback(self, rng):
        self.rolled_back(rng.choice(self.snaps))

    def rolled_back(self, snap):
        r = api.post(self.path('/rollback'), {'snapshot': snap.id})
        before = [s for s in self.new_snapshots() if s['id'] == r['before']]
        same(len(before), 1, f'{self}: the present of before is a snapshot')
        same(r['cold'], snap.kind == 'disk', f'{self}: cold')
        self.add(before[0])
        self.go_to(snap)
        self.state = 'running'

    def pause(self, rng):
        durable = rng.random() < 0.5
        api.post(self.path('/pause'), {'durable': durable})
        self.paused()

    def paused(self):
        for shown in self.new_snapshots():
            same((shown['made_by'], shown['kind']), ('pause', 'full'), f'{self}: a snapshot of the pause')
            self.add(shown)
        self.state = 'paused'

    def resume(self, rng):
        api.post(self.path('/resume'))
        self.state = 'running'

    def stop(self, rng):
        api.post(self.path('/stop'))
        self.cold()
        self.state = 'stopped'

    def start(self, rng):
        api.post(self.path('/start'))
        self.state = 'running'

    def kill_machine(self, rng):
        """It comes back from the newest full snapshot of its past, or from its disk."""
        self.kills += 1
        pid = machine_pid(self.box)
        kill_pid(pid)
        until(lambda: self.box.node_info()['state'] == 'running' and self.box.node_info().get('pid') not in (None, pid),
              lambda: f'{self} comes back: {self.box.node_info()}')
        until(lambda: self.box.info()['state'] == 'running', f'{self}: the gateway sees it')
        full = self.newest_full()
        if full:
            found = self.new_snapshots()
            same([(s['made_by'], s['kind']) for s in found], [('recovery', 'disk')], f'{self}: the disk as it was found')
            self.add(found[0])
            self.go_to(full)
        else:
            self.cold()

    def kill_paused_machine(self, rng):
        """What was paused durably stays paused; its resume begins from there."""
        self.kills += 1
        kill_pid(machine_pid(self.box))
        until(lambda: self.box.node_info().get('pid') is None, f'{self}: its end is seen')
        same(self.box.node_info()['state'], 'paused', f'{self}')
        self.resume(rng)
        # Its memory came back, so the disk as it was found is a snapshot beside the past.
        found = self.new_snapshots()
        same([(s['made_by'], s['kind']) for s in found], [('recovery', 'disk')], f'{self}: the disk as it was found')
        full = self.newest_full()
        self.add(found[0])
        self.go_to(full)

    # Comparison.
    def verify(self):
        until(lambda: self.box.info()['state'] == self.state,
              lambda: f'{self}: want {self.state}, the gateway says {self.box.info()["state"]}', 40)
        same(self.box.node_info()['state'], self.state, f'{self}: on the node')
        listed = {s['id']: s for s in self.listed()}
        same(sorted(listed), sorted(s.id for s in self.snaps), f'{self}: snapshots')
        past = set()
        at = self.now
        while at:
            past.add(at.id)
            at = at.parent
        for snap in self.snaps:
            shown = listed[snap.id]
            same((shown['kind'], shown['parent'], shown['past']), (snap.kind, snap.parent and snap.parent.id, snap.id in past),
                 f'{self}: snapshot {snap.id}')
        if self.state != 'running':
            return
        have = {}
        for e in self.box.list('/home/user')['entries']:
            if e['name'] in FILES:
                have[e['name']] = sha(self.box.read(f'/home/user/{e["name"]}'))
        same(have, self.files, f'{self}: files')
        runs = {c['id'] for c in api.get(self.path('/commands'))['commands'] if c['state'] == 'running'}
        same(runs, self.commands, f'{self}: commands that run')


class World:
    """All sandboxes of a run, and the next step."""

    def __init__(self, rng, live_max=4):
        self.rng = rng
        self.lives = []
        self.live_max = live_max
        self.counts = {}
        self.log = []

    def choices(self):
        """(weight, name, life or None), in an order that the model alone decides."""
        out = []
        if len(self.lives) < self.live_max:
            out.append((4, 'create', None))
        for x in self.lives:
            add = lambda weight, name: out.append((weight, name, x))  # noqa: B023, E731
            add(1, 'delete')
            if x.state != 'stopped' and len(x.snaps) < SNAPSHOTS_MAX:
                add(3, 'snapshot')
            if x.snaps:
                add(2, 'rollback')
                add(4 if len(x.snaps) >= SNAPSHOTS_MAX else 1, 'delete_snapshot')
            if len(self.lives) < self.live_max:
                add(2, 'fork')
            if x.state == 'running':
                add(6, 'write')
                add(2, 'start_command')
                add(2, 'pause')
                add(1, 'stop')
                if x.files:
                    add(1, 'remove')
                if x.kills < KILLS_MAX:
                    add(2, 'kill_machine')
            elif x.state == 'paused':
                add(4, 'resume')
                add(1, 'stop')
                if x.kills < KILLS_MAX and x.now and x.now.kind == 'full':
                    add(2, 'kill_paused_machine')
            else:
                add(4, 'start')
                add(1, 'snapshot')
        return out

    def step(self):
        options = self.choices()
        weight, name, life = self.rng.choices(options, [o[0] for o in options])[0]
        self.counts[name] = self.counts.get(name, 0) + 1
        self.log.append(f'{name} {life or ""}')
        if name == 'create':
            life = self.create()
        elif name == 'fork':
            life = self.fork(life)
        elif name == 'delete':
            life.box.delete()
            self.lives.remove(life)
            refused(404, life.box.info)
            return
        else:
            getattr(life, name)(self.rng)
        life.verify()

    def create(self):
        policy = {'before_commands': 'disk', 'keep_hour': 1000} if self.rng.random() < 0.3 else {}
        made = create(policy=policy, timeout_s=0, memory_mib=128)
        self.lives.append(Life(made.id, policy))
        return self.lives[-1]

    def fork(self, parent):
        """From the present, or from one of the parent's snapshots."""
        snap = self.rng.choice([None, *parent.snaps])
        body = {'count': 1, **({'snapshot': snap.id} if snap else {})}
        sid = api.post(parent.path('/fork'), body)['sandboxes'][0]['id']
        child = Life(sid, parent.policy)
        child.files = dict(snap.files if snap else parent.files)
        warm = snap.kind == 'full' if snap else parent.state != 'stopped'
        child.commands = set((snap.commands if snap else parent.commands) if warm else ())
        self.lives.append(child)
        parent.verify()
        return child

    def verify(self):
        for life in self.lives:
            life.verify()

    def end(self):
        for life in self.lives:
            life.box.delete()
        self.lives.clear()
