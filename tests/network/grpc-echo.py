# SPDX-License-Identifier: Apache-2.0
"""gRPC without generated code, for the tests: a server that needs a credential, and a client that has none.

    grpc-echo.py server ADDRESS CERT-AND-KEY     prints "ready"; ends with its input
    grpc-echo.py client NAME CA-FILE             prints what came back
"""
import sys
from concurrent import futures

import grpc


def token(context):
    return dict(context.invocation_metadata()).get("authorization", "none")


def unary(request, context):
    context.set_trailing_metadata((("x-token", token(context)),))
    return b"one " + request + b" " + token(context).encode()


def both_ways(requests, context):
    context.send_initial_metadata((("x-start", "yes"),))
    for request in requests:
        yield b"got " + request
    if token(context) == "none":
        context.abort(grpc.StatusCode.UNAUTHENTICATED, "no token")


def fail(_request, context):
    context.abort(grpc.StatusCode.NOT_FOUND, "nothing here")


def server(address, cert_file):
    with open(cert_file, "rb") as f:
        pem = f.read()
    handlers = {"Unary": grpc.unary_unary_rpc_method_handler(unary), "Fail": grpc.unary_unary_rpc_method_handler(fail),
                "Both": grpc.stream_stream_rpc_method_handler(both_ways)}
    s = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
    s.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", handlers),))
    s.add_secure_port(address, grpc.ssl_server_credentials([(pem, pem)]))
    s.start()
    print("ready", flush=True)
    sys.stdin.read()
    s.stop(None)


def client(name, ca_file):
    with open(ca_file, "rb") as f:
        credentials = grpc.ssl_channel_credentials(root_certificates=f.read())
    with grpc.secure_channel(name, credentials, options=[("grpc.dns_enable_srv_queries", 0)]) as channel:
        answer, call = channel.unary_unary("/test.Echo/Unary").with_call(b"hello", timeout=20)
        print("unary", answer.decode(), dict(call.trailing_metadata()).get("x-token"))
        sent = []

        def questions():
            for i in range(40):
                sent.append(i)
                yield b"q%d " % i + bytes(30000)
        stream = channel.stream_stream("/test.Echo/Both")(questions(), timeout=40)
        n = sum(1 for a in stream if len(a) > 30000 and a.startswith(b"got q"))
        print("both", n, dict(stream.initial_metadata()).get("x-start"), stream.code().name)
        try:
            channel.unary_unary("/test.Echo/Fail")(b"x", timeout=20)
        except grpc.RpcError as e:
            print("fail", e.code().name, e.details())


if __name__ == "__main__":
    {"server": server, "client": client}[sys.argv[1]](*sys.argv[2:])
