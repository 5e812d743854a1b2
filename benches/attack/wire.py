"""Requests as bytes: HTTP/1.1, HTTP/2 frames, protobuf fields, and images that cost more than their size."""

import socket
import struct
import zlib
from itertools import count, islice, product

# Types of HTTP/2 frames.
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM = ACK = 1
END_HEADERS = 4
INITIAL_WINDOW_SIZE = 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def header_block(fields: dict[str, str]) -> bytes:
    """The fields by HPACK's literals without indexing and without Huffman codes."""
    block = bytearray()
    for pair in fields.items():
        block += b"\0"
        for text in pair:
            assert len(text) < 127, "longer texts need a longer prefix"
            block += bytes([len(text)]) + text.encode()
    return bytes(block)


class Http2:
    """A client's HTTP/2 connection without TLS. It answers pings, and follows the server's windows when it sends."""

    def __init__(self, stream: socket.socket, window: int = 65535):
        self.socket = stream
        self.ids = count(1, 2)
        # Windows that the server gives: for new streams, for the connection (0) and for each stream.
        self.initial, self.windows = 65535, {0: 65535}
        self.reads = window > 0
        self.answered, self.ended = set(), set()
        settings = struct.pack(">HI", INITIAL_WINDOW_SIZE, window)
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0, settings))

    def request(self, path: str, fields: dict[str, str] | None = None, method: str = "POST", end: bool = False) -> int:
        """Sends the head of a request and returns its stream."""
        fields = {":method": method, ":scheme": "http", ":path": path, ":authority": "localhost"} | (fields or {})
        stream = next(self.ids)
        self.windows[stream] = self.initial
        flags = END_HEADERS | (END_STREAM if end else 0)
        self.socket.sendall(frame(HEADERS, flags, stream, header_block(fields)))
        return stream

    def send(self, stream: int, body: bytes, end: bool = True) -> None:
        body = memoryview(body)
        while body and stream not in self.ended:
            most = min(16384, self.windows[0], self.windows[stream], len(body))
            if most <= 0:
                self.read_frame()
                continue
            for window in (0, stream):
                self.windows[window] -= most
            flags = END_STREAM if end and most == len(body) else 0
            self.socket.sendall(frame(DATA, flags, stream, bytes(body[:most])))
            body = body[most:]

    def grpc(self, method: str, message: bytes, fields: dict[str, str] | None = None) -> int:
        fields = {"content-type": "application/grpc", "te": "trailers"} | (fields or {})
        stream = self.request(f"/inference.GRPCInferenceService/{method}", fields)
        self.send(stream, b"\0" + struct.pack(">I", len(message)) + message)
        return stream

    def exactly(self, length: int) -> bytes:
        data = bytearray()
        while len(data) < length:
            part = self.socket.recv(length - len(data))
            if not part:
                raise ConnectionError("the server closed the connection")
            data += part
        return bytes(data)

    def read_frame(self) -> None:
        head = self.exactly(9)
        kind, flags = head[3], head[4]
        stream = struct.unpack(">I", head[5:])[0] & 0x7FFFFFFF
        payload = self.exactly(int.from_bytes(head[:3], "big"))
        if kind == SETTINGS and not flags & ACK:
            for name, value in struct.iter_unpack(">HI", payload):
                if name == INITIAL_WINDOW_SIZE:
                    for key in self.windows.keys() - {0}:
                        self.windows[key] += value - self.initial
                    self.initial = value
            self.socket.sendall(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self.socket.sendall(frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE and stream in self.windows:
            self.windows[stream] += struct.unpack(">I", payload)[0]
        elif kind == GOAWAY:
            raise ConnectionError("the server says goodbye")
        elif kind == RST_STREAM:
            self.ended.add(stream)
        elif kind in (HEADERS, DATA):
            self.answered.add(stream)
            if flags & END_STREAM:
                self.ended.add(stream)
            if kind == DATA and payload and self.reads:
                credit = struct.pack(">I", len(payload))
                self.socket.sendall(frame(WINDOW_UPDATE, 0, 0, credit) + frame(WINDOW_UPDATE, 0, stream, credit))

    def wait(self, stream: int, head_only: bool = False) -> None:
        """Waits until the answer has ended, or until its head is there."""
        while stream not in self.ended and not (head_only and stream in self.answered):
            self.read_frame()


def http1(path: str, body: bytes = b"", fields: dict[str, str] | None = None, method: str = "POST", length: int | None = None) -> bytes:
    """A request that asks for the connection's end. `length`: an announced length that need not be the body's."""
    fields = {"Host": "localhost", "Connection": "close", "Content-Length": str(len(body) if length is None else length)} | (fields or {})
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number: int, content: bytes) -> bytes:
    """A length-delimited field of protobuf: text, bytes, a message or packed numbers."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def map_entries(number: int, size: int) -> bytes:
    """Entries of a map with distinct keys of four letters, as many as fit into `size` bytes."""
    letters = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
    pairs = [bytes(pair) for pair in product(letters, repeat=2)]
    head = field(number, field(1, b"four")).removesuffix(b"four")
    groups = (b"".join([head + first + second for second in pairs]) for first in pairs)
    return b"".join(islice(groups, size // (len(head) + 4) // len(pairs)))


def scans_jpeg(side: int = 8000, scans: int = 490) -> bytes:
    """A grey progressive JPEG whose scans say little (long runs of blocks that end at once), and cost a pass over all blocks each."""

    def segment(marker: int, content: bytes) -> bytes:
        return bytes([0xFF, marker]) + struct.pack(">H", len(content) + 2) + content

    def scan(first: int, last: int, approximation: int, data: bytes) -> bytes:
        return segment(0xDA, bytes([1, 1, 0, first, last, approximation])) + data

    blocks = (side // 8) ** 2
    # One symbol of one bit each: a difference of 0 for DC; for AC, EOB14, with 14 bits of a run's length after it.
    table = bytes([1]) + bytes(15)
    bits = ""
    left = blocks
    while left:
        run = min(left, 32767)
        assert run >= 1 << 14, "a shorter run needs another symbol"
        bits += f"0{run - (1 << 14):014b}"
        left -= run
    bits += "1" * (-len(bits) % 8)
    runs = int(bits, 2).to_bytes(len(bits) // 8, "big").replace(b"\xff", b"\xff\0")
    return b"".join((
        b"\xff\xd8",
        segment(0xDB, bytes([0]) + bytes([1]) * 64),
        segment(0xC2, struct.pack(">BHHB", 8, side, side, 1) + bytes([1, 0x11, 0])),
        segment(0xC4, bytes([0]) + table + bytes([0])),
        scan(0, 0, 0, bytes(blocks // 8)),
        segment(0xC4, bytes([0x10]) + table + bytes([0xE0])),
        scan(1, 63, 0x01, runs),
        scan(1, 63, 0x10, runs) * scans,
        b"\xff\xd9",
    ))


def large_png(side: int = 8192) -> bytes:
    """A black RGB image, of a thousandth of the size of its pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    packer = zlib.compressobj(9)
    row = bytes(1 + 3 * side)
    rows = b"".join(packer.compress(row) for _ in range(side)) + packer.flush()
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
