"""The server under attack, its neighbours, and their measurements."""

import asyncio
import math
import multiprocessing
import os
import re
import resource
import signal
import socket
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from .kinds import HEALTH, INFER, Attacker, Kind
from .wire import http1

RATE = 20
# Time-out of a neighbour.
PATIENCE = 35
# Time that neighbours are watched before the attack, and at most after it.
WARM_UP, RECOVERY = 3, 45
TOKEN = "the-server's-token"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    def __init__(self, program: Path, kind: Kind, address_space: int, folder: Path):
        self.port = free_port()
        command = [str(program), "serve", "--listen", f"127.0.0.1:{self.port}", "--body-memory", "256", *kind.options]
        helped = subprocess.run([program, "serve", "--help"], capture_output=True, text=True, check=True).stdout
        if "--max-decode-memory" in helped:
            command += ["--max-decode-memory", "256M"]
        if not kind.provider:
            command += ["--device", "cpu"]
        if kind.token:
            (folder / "token").write_text(TOKEN)
            command += ["--token-file", str(folder / "token")]
        self.token = TOKEN if kind.token else None
        self.log = folder / "log"
        self.reader = None
        match kind.stderr:
            case "full":
                stderr = os.open("/dev/full", os.O_WRONLY)
            case "closed":
                self.reader, stderr = os.pipe()
            case _:
                stderr = os.open(self.log, os.O_WRONLY | os.O_CREAT)

        def limit() -> None:
            if not kind.provider:
                resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
            if kind.descriptors:
                resource.setrlimit(resource.RLIMIT_NOFILE, (kind.descriptors, kind.descriptors))

        self.process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=stderr, env=os.environ | kind.environment, preexec_fn=limit
        )
        os.close(stderr)

    def wait(self) -> bool:
        """Waits until the server is ready. False: it ended."""
        request = http1("/v2/health/ready", method="GET")
        for _ in range(600):
            if self.process.poll() is not None:
                return False
            try:
                with socket.create_connection(("127.0.0.1", self.port), 5) as stream:
                    stream.sendall(request)
                    if b" 200 " in stream.recv(1024):
                        break
            except OSError:
                pass
            time.sleep(0.1)
        if self.reader is not None:
            os.close(self.reader)
        return True

    def memory(self, name: str) -> int | None:
        """A figure of the process in bytes; `None` if it has ended."""
        try:
            found = re.search(rf"{name}:\s+(\d+)", Path(f"/proc/{self.process.pid}/status").read_text())
        except OSError:
            return None
        return int(found[1]) * 1024 if found else None

    def stop(self) -> tuple[str, float]:
        """Sends SIGTERM. Returns how the process ended, and after how many seconds."""
        if self.process.poll() is not None:
            return outcome(self.process.returncode), 0.0
        begin = time.monotonic()
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return "hung", 60.0
        return outcome(self.process.returncode), time.monotonic() - begin


def outcome(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else str(code)


@dataclass
class Asked:
    """One request of a neighbour."""

    sent: float
    seconds: float
    status: str

    def ok(self) -> bool:
        return self.status == "200"


async def ask(port: int, request: bytes) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        head = await reader.readexactly(12)
        await reader.read()
        return head[9:].decode()
    finally:
        writer.close()


def observe(port: int, requests: dict[str, bytes], stop, answered, results) -> None:
    """Sends each of the requests 20 times a second until `stop` is set, whether or not the ones before are answered."""
    asked = {name: [] for name in requests}

    async def one(name: str) -> None:
        sent = time.monotonic()
        try:
            status = await asyncio.wait_for(ask(port, requests[name]), PATIENCE)
        except TimeoutError:
            status = "no answer"
        except (OSError, asyncio.IncompleteReadError):
            status = "closed"
        asked[name].append(Asked(sent, time.monotonic() - sent, status))
        if status == "200" and name == "neighbour":
            answered.value = max(answered.value, sent)

    async def all_of_them() -> None:
        begin, tasks = time.monotonic(), set()
        for tick in range(1_000_000):
            if stop.is_set():
                break
            await asyncio.sleep(max(0.0, begin + tick / RATE - time.monotonic()))
            for name in requests:
                task = asyncio.create_task(one(name))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
        await asyncio.gather(*tasks)

    asyncio.run(all_of_them())
    results.send(asked)


class Observer:
    """The neighbours, in a process of their own, so that the attackers do not slow them down."""

    def __init__(self, server: Server, kind: Kind):
        fields = {"Authorization": f"Bearer {server.token}"} if server.token else {}
        requests = {"neighbour": http1(INFER, kind.neighbour, fields), "health": http1(HEALTH, method="GET")}
        spawn = multiprocessing.get_context("spawn")
        self.end, self.answered = spawn.Event(), spawn.Value("d", 0.0)
        self.results, sender = spawn.Pipe(duplex=False)
        self.process = spawn.Process(target=observe, args=(server.port, requests, self.end, self.answered, sender))
        self.process.start()

    def wait(self, since: float, server: Server) -> None:
        """Waits until a request is answered that was sent after `since`; not for ever."""
        deadline = time.monotonic() + RECOVERY
        while self.answered.value <= since and time.monotonic() < deadline and server.process.poll() is None:
            time.sleep(0.05)

    def stop(self) -> dict[str, list[Asked]]:
        """Returns what was asked, when all of it is answered."""
        self.end.set()
        asked = self.results.recv()
        self.process.join()
        return asked


def percentile(asked: list[Asked], share: float) -> float | None:
    """Seconds that `share` of the requests took at most. `None` if too few were answered."""
    times = sorted(one.seconds if one.ok() else math.inf for one in asked)
    time = times[math.ceil(share * len(times)) - 1] if times else math.inf
    return round(time, 4) if math.isfinite(time) else None


def longest_gap(asked: list[Asked], begin: float, end: float) -> float:
    """The longest time in which no request was answered."""
    times = sorted(one.sent + one.seconds for one in asked if one.ok())
    times = [begin, *(time for time in times if begin < time < end), end]
    return round(max(after - before for before, after in zip(times, times[1:])), 2)


def measure(program: Path, kind: Kind, address_space: int, seconds: float) -> dict:
    """Runs one kind of attack and returns its row."""
    with tempfile.TemporaryDirectory() as folder:
        attacker = Attacker(0, kind.body())
        server = Server(program, kind, address_space, Path(folder))
        attacker.port = server.port
        try:
            if server.wait():
                row = attack(server, kind, attacker, kind.seconds or seconds)
            else:
                row = {"started": False, "exit": outcome(server.process.returncode)}
        finally:
            server.process.kill()
        if row["exit"] != "0" and server.log.exists():
            row["log"] = server.log.read_text(errors="replace")[-300:]
        return {"kind": kind.name} | row


def attack(server: Server, kind: Kind, attacker: Attacker, seconds: float) -> dict:
    observer = Observer(server, kind)
    observer.wait(0, server)
    time.sleep(WARM_UP)
    idle = server.memory("VmRSS")
    # Reset VmHWM, the peak.
    Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")
    peak = [idle]

    def sample() -> None:
        while (memory := server.memory("VmHWM")) is not None:
            peak[0] = max(peak[0], memory)
            time.sleep(0.02)

    threading.Thread(target=sample, daemon=True).start()
    clients = [threading.Thread(target=attacker.run, args=(kind.work,), daemon=True) for _ in range(kind.clients)]
    begin = time.monotonic()
    for client in clients:
        client.start()
    while time.monotonic() < begin + seconds and server.process.poll() is None:
        time.sleep(0.1)
    held = server.memory("VmRSS")
    attacker.stop.set()
    end = time.monotonic()
    for client in clients:
        client.join(max(0.0, end + RECOVERY - time.monotonic()))
    left = time.monotonic()
    time.sleep(5)
    after = server.memory("VmRSS")
    observer.wait(left, server)
    watched = time.monotonic()
    asked = observer.stop()
    died = server.process.poll() is not None
    exit, exit_seconds = server.stop()

    def above(figure: int | None) -> float | None:
        return None if figure is None else round((figure - idle) / (1 << 20), 1)

    neighbour, health = ([one for one in asked[name] if begin <= one.sent <= end] for name in ("neighbour", "health"))
    failures = [one.status for one in neighbour if not one.ok()]
    return {
        "started": True,
        "died": died,
        "exit": exit,
        "exit_seconds": round(exit_seconds, 2),
        "idle_mib": round(idle / (1 << 20), 1),
        "peak_mib": above(peak[0]),
        "held_mib": above(held),
        "after_mib": above(after),
        "without_answer_s": longest_gap(asked["neighbour"], begin, watched),
        "neighbour_p50_s": percentile(neighbour, 0.5),
        "neighbour_p99_s": percentile(neighbour, 0.99),
        "neighbour_requests": len(neighbour),
        "neighbour_failures": len(failures),
        "failures": {status: failures.count(status) for status in set(failures)},
        "health_p99_s": percentile(health, 0.99),
        "health_failures": sum(not one.ok() for one in health),
        "attack_s": round(end - begin, 1),
        "attacker": dict(attacker.answers),
    }
