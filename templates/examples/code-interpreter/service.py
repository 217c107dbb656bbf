#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
#
# The service that E2B's code interpreter clients talk to: Jupyter kernels behind HTTP on port 49999.
#
#     GET    /health                  204 when the first kernel is there
#     POST   /execute                 {code, context_id?, language?, env_vars?}: lines of JSON until end_of_execution
#     POST   /contexts                {language?, cwd?}: a kernel of its own; GET lists them
#     POST   /contexts/ID/restart     its variables are gone, its id stays; DELETE /contexts/ID ends it
#
# A context runs one piece of code at a time, in the order of the requests; a client that goes away interrupts its own.
# The sandbox may be one of many that began as the same memory: before the first execution in each, what kernels hold
# of randomness is made new.
import asyncio
import contextlib
import datetime
import json
import os
import sys
import uuid

from aiohttp import web
from jupyter_client import AsyncKernelManager

PORT = 49999
HOME = os.path.expanduser('~')
CODE_MAX = 64 << 20  # a request's body
CONTEXTS_MAX = 64
START_S = 300  # of an emulated machine on a busy host, an import is not a moment
SETTLE_S = 10  # what code may take to notice that it is interrupted
KINDS = {
    'text/html': 'html', 'text/markdown': 'markdown', 'image/svg+xml': 'svg', 'image/png': 'png', 'image/jpeg': 'jpeg',
    'application/pdf': 'pdf', 'text/latex': 'latex', 'application/json': 'json', 'application/javascript': 'javascript',
    'e2b/data': 'data', 'e2b/chart': 'chart',
}
# Run in a kernel when the machine has become another one.
RESEED = '''
import random as _r, sys as _s
_r.seed()
if 'numpy' in _s.modules: _s.modules['numpy'].random.seed()
del _r, _s
'''


def machine():
    with contextlib.suppress(OSError):
        with open('/etc/machine-id') as file:
            return file.read()
    return ''


class Refused(Exception):
    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


class Context:
    """One kernel, and what is known of it."""

    def __init__(self, cwd):
        self.id = str(uuid.uuid4())
        self.cwd = cwd
        self.lock = asyncio.Lock()
        self.manager = None
        self.client = None
        self.machine = machine()

    def show(self):
        return {'id': self.id, 'language': 'python', 'cwd': self.cwd}

    async def start(self):
        self.manager = AsyncKernelManager(kernel_name='python3')
        # The bundled kernel: whatever the user installs beside it is found all the same.
        self.manager.kernel_cmd = [sys.executable, '-m', 'ipykernel_launcher', '-f', '{connection_file}']
        env = {**os.environ, 'MPLBACKEND': 'module://matplotlib_inline.backend_inline'}
        await self.manager.start_kernel(cwd=self.cwd, env=env)
        await self.connect()

    async def connect(self):
        if self.client:
            self.client.stop_channels()
        self.client = self.manager.client()
        self.client.start_channels()
        await self.client.wait_for_ready(timeout=START_S)

    async def restart(self):
        # Whoever waits for the old kernel's answer would wait for ever.
        await self.manager.interrupt_kernel()
        async with self.lock:
            await self.manager.restart_kernel(now=True)
            await self.connect()

    async def end(self):
        self.client.stop_channels()
        await self.manager.shutdown_kernel(now=True)

    async def quietly(self, code):
        """Runs code that leaves no trace in the history or the count."""
        message = self.client.execute(code, silent=True, store_history=False, allow_stdin=False)
        async for _ in self.answers(message):
            pass

    async def settle(self, message):
        """Interrupts what runs; the kernel is ready for the next when this returns."""
        async def drain():
            async for _ in self.answers(message):
                pass

        await self.manager.interrupt_kernel()
        try:
            await asyncio.wait_for(drain(), SETTLE_S)
        except asyncio.TimeoutError:
            await self.manager.restart_kernel(now=True)
            await self.connect()

    async def answers(self, message):
        """What the kernel publishes for a request, until it is idle again; or it has died."""
        while True:
            try:
                answer = await self.client.get_iopub_msg(timeout=1)
            except Exception:  # queue.Empty, or what this version of the library calls it
                if not await self.manager.is_alive():
                    yield 'died', {}
                    await self.manager.restart_kernel(now=True)
                    await self.connect()
                    return
                continue
            if answer['parent_header'].get('msg_id') != message:
                continue
            if answer['msg_type'] == 'status' and answer['content']['execution_state'] == 'idle':
                return
            yield answer['msg_type'], answer['content']

    async def run(self, code, env):
        """Lines for the client."""
        if self.machine != machine():
            self.machine = machine()
            await self.quietly(RESEED)
        if env:
            await self.quietly(f'import os as _o; _space_env = dict(_o.environ); _o.environ.update({env!r}); del _o')
        message = self.client.execute(code, allow_stdin=False, stop_on_error=False)
        try:
            async for kind, content in self.answers(message):
                line = shown(kind, content)
                if line:
                    yield line
        except (asyncio.CancelledError, GeneratorExit):
            await self.settle(message)
            raise
        finally:
            if env:
                await self.quietly('import os as _o; _o.environ.clear(); _o.environ.update(_space_env); del _o, _space_env')


def result(content, main):
    data = dict(content['data'])
    line = {'type': 'result', 'is_main_result': main}
    text = data.pop('text/plain', None)
    if text is not None:
        if len(text) >= 2 and text[0] in '\'"' and text[-1] == text[0]:
            text = text[1:-1]
        line['text'] = text
    for kind, name in KINDS.items():
        if kind in data:
            value = data.pop(kind)
            line[name] = value.strip() if name in ('png', 'jpeg', 'pdf') and isinstance(value, str) else value
    if data:
        line['extra'] = data
    return line


def shown(kind, content):
    """A line for what the kernel says; None: it is not for clients."""
    if kind == 'stream':
        now = datetime.datetime.now(datetime.timezone.utc).isoformat()
        return {'type': content['name'], 'text': content['text'], 'timestamp': now}
    if kind in ('display_data', 'execute_result'):
        return result(content, kind == 'execute_result')
    if kind == 'execute_input':
        return {'type': 'number_of_executions', 'execution_count': content['execution_count']}
    if kind == 'error':
        return {'type': 'error', 'name': content['ename'], 'value': content['evalue'],
                'traceback': '\n'.join(content['traceback'])}
    if kind == 'died':
        return {'type': 'error', 'name': 'KernelDied', 'value': 'the kernel has ended and was started anew',
                'traceback': ''}
    return None


class Service:
    def __init__(self):
        self.contexts = {}
        self.first = None

    async def make(self, cwd):
        if len(self.contexts) >= CONTEXTS_MAX:
            raise Refused(429, f'there are {CONTEXTS_MAX} contexts: delete one')
        if not os.path.isdir(cwd):
            raise Refused(400, f"the folder '{cwd}' does not exist")
        context = Context(cwd)
        await context.start()
        self.contexts[context.id] = context
        return context

    async def begin(self):
        self.first = await self.make(HOME)
        # What most code needs is in memory when the first request comes.
        await self.first.quietly('import matplotlib.pyplot, numpy; del matplotlib, numpy')

    def find(self, id):
        if id not in self.contexts:
            raise Refused(404, f'Context {id} not found')
        return self.contexts[id]

    async def default(self):
        """Deleted by its client, it is there again when somebody wants it."""
        if self.first.id not in self.contexts:
            self.first = await self.make(HOME)
        return self.first


def field(body, name, kind, fallback):
    value = body.get(name)
    if value is None:
        return fallback
    if not isinstance(value, kind):
        raise Refused(400, f"'{name}' has the wrong type")
    return value


async def read(request):
    try:
        body = await request.json() if request.can_read_body else {}
    except ValueError:
        raise Refused(400, 'the body is not JSON') from None
    if not isinstance(body, dict):
        raise Refused(400, 'the body must be an object')
    if field(body, 'language', str, 'python').lower() not in ('python', 'python3'):
        raise Refused(400, f"there is no kernel for '{body['language']}': only python")
    return body


async def execute(request):
    service = request.app['service']
    body = await read(request)
    code = field(body, 'code', str, None)
    if code is None:
        raise Refused(400, "'code' is missing")
    env = field(body, 'env_vars', dict, {})
    if not all(isinstance(v, str) for v in env.values()):
        raise Refused(400, "'env_vars' must hold strings")
    id = field(body, 'context_id', str, None)
    context = service.find(id) if id else await service.default()
    response = web.StreamResponse(headers={'Content-Type': 'application/x-ndjson', 'Cache-Control': 'no-store'})
    await response.prepare(request)

    async def send(line):
        await response.write(json.dumps(line).encode() + b'\n')

    async def work():
        async with context.lock, contextlib.aclosing(context.run(code, env)) as lines:
            async for line in lines:
                await send(line)
        await send({'type': 'end_of_execution'})
        await response.write_eof()

    task = asyncio.ensure_future(work())
    try:
        while not task.done():
            await asyncio.wait([task], timeout=0.5)
            if request.transport is None or request.transport.is_closing():
                break
    finally:
        if not task.done():  # nobody listens
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError, ConnectionError):
            await task
    return response


async def create(request):
    body = await read(request)
    context = await request.app['service'].make(field(body, 'cwd', str, HOME) or HOME)
    return web.json_response(context.show())


async def contexts(request):
    return web.json_response([c.show() for c in request.app['service'].contexts.values()])


async def restart(request):
    await request.app['service'].find(request.match_info['id']).restart()
    return web.Response(status=204)


async def remove(request):
    service = request.app['service']
    context = service.find(request.match_info['id'])
    del service.contexts[context.id]
    await context.end()
    return web.Response(status=204)


async def health(request):
    return web.Response(status=204)


@web.middleware
async def refusals(request, handler):
    try:
        return await handler(request)
    except Refused as e:
        return web.json_response({'message': str(e), 'detail': str(e)}, status=e.status)


async def main():
    service = Service()
    await service.begin()
    app = web.Application(client_max_size=CODE_MAX, middlewares=[refusals])
    app['service'] = service
    app.add_routes([
        web.get('/health', health), web.post('/execute', execute), web.post('/contexts', create),
        web.get('/contexts', contexts), web.post('/contexts/{id}/restart', restart), web.delete('/contexts/{id}', remove),
    ])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, '0.0.0.0', PORT).start()
    await asyncio.Event().wait()


if __name__ == '__main__':
    asyncio.run(main())
