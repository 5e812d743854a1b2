"""Loads `hipvit serve` with the embedded TinyViT32, using Python's own HTTP client. Every request has an id and one of ten digits. It must
be answered once, with its id and the logits of its digit.

    load.py memory HIPVIT      ten thousand requests on flat memory
    load.py overload HIPVIT    more clients than the queue takes: each is served or told to come again, none is lost
    load.py restart HIPVIT     the server is killed (SIGKILL) and started again under load; clients try again until they are served
    load.py lost HIPVIT        one of two GPUs is lost under load (the environment says how): every request is served by the other
"""

import atexit
import base64
import http.client
import itertools
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

SAMPLES = Path(__file__).parent.parent.parent / "assets/samples"
DIGITS = [base64.b64encode((SAMPLES / f"{digit}.png").read_bytes()).decode() for digit in range(10)]


class Server:
    """A server in a process of its own, always on the same port."""

    def __init__(self, hipvit, *options):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.command = [hipvit, "serve", "--listen", f"127.0.0.1:{self.port}", "--threads", "1", *options]
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        # Whatever stops this program.
        atexit.register(self.process.kill)
        log = []
        for line in self.process.stderr:
            log.append(line)
            if "listening" in line:
                break
        else:
            raise SystemExit("the server did not start:\n" + "".join(log))
        # What it logs later must not fill the pipe.
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        self.process.terminate()
        assert self.process.wait() == 0, "the server did not end with success"

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()

    def metric(self, name, **labels):
        total = 0.0
        for line in self.get("/metrics")[1].splitlines():
            if line.startswith(name) and all(f'{key}="{value}"' in line for key, value in labels.items()):
                total += float(line.rsplit(" ", 1)[1])
        return total

    def memory(self):
        """Resident, in MiB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


class Client:
    """Sends requests on a connection that it uses again."""

    def __init__(self, server):
        self.server = server
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)

    def infer(self, request, digit):
        """The status, the headers and the answer; an OSError or HTTPException if the connection breaks."""
        tensor = {"name": "image", "shape": [1], "datatype": "BYTES", "data": [DIGITS[digit]]}
        body = json.dumps({"id": str(request), "inputs": [tensor], "outputs": [{"name": "logits"}]})
        try:
            self.connection.request("POST", "/v2/models/tinyvit32/infer", body)
            response = self.connection.getresponse()
            return response.status, response.headers, json.loads(response.read())
        except (OSError, http.client.HTTPException):
            self.connection.close()
            raise


def logits(answer):
    return answer["outputs"][0]["data"]


def clients(count, requests, work):
    """Runs `work(number)` for each request, by `count` threads; an error of any is an error."""
    numbers, lock, errors = itertools.count(), threading.Lock(), []

    def run():
        try:
            state = {}
            while not errors:
                with lock:
                    number = next(numbers)
                if number >= requests:
                    return
                work(number, state)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def expected(server):
    """The logits of each digit."""
    client = Client(server)
    answers = [client.infer(digit, digit) for digit in range(10)]
    assert all(status == 200 for status, _, _ in answers), answers
    return [logits(answer) for _, _, answer in answers]


def check(answer, number, digit, wanted):
    assert answer["id"] == str(number), f"request {number} got the answer of {answer['id']}"
    assert logits(answer) == wanted[digit], f"request {number}: the logits differ"


def served(server, wanted):
    """A client's work: a request that must be served."""

    def work(number, state):
        client = state.setdefault("client", Client(server))
        status, _, answer = client.infer(number, number % 10)
        assert status == 200, answer
        check(answer, number, number % 10, wanted)

    return work


def memory(hipvit):
    server = Server(hipvit, "--device", "cpu")
    wanted = expected(server)
    clients(8, 1000, served(server, wanted))
    before = server.memory()
    clients(8, 10_000, served(server, wanted))
    after = server.memory()
    print(f"memory: 10,000 requests, {before:.1f} MiB resident before and {after:.1f} MiB after")
    # Less than 1 KiB a request: what each one leaves would show.
    assert after - before < 8, "memory grows"
    server.stop()


def overload(hipvit):
    server = Server(hipvit, "--device", "cpu", "--queue", "8", "--max-batch", "4")
    wanted = expected(server)
    statuses = {200: 0, 429: 0}
    lock = threading.Lock()

    def work(number, state):
        client = state.setdefault("client", Client(server))
        status, headers, answer = client.infer(number, number % 10)
        if status == 200:
            check(answer, number, number % 10, wanted)
        else:
            assert status == 429 and int(headers["Retry-After"]) >= 1 and "overloaded" in answer["error"], answer
        with lock:
            statuses[status] += 1

    clients(64, 5000, work)
    assert statuses[200] + statuses[429] == 5000 and min(statuses.values()) > 0, statuses
    # What the server counted is what the clients got; the first ten were for what is expected.
    assert server.metric("hipvit_requests_total", outcome="ok") == statuses[200] + 10
    assert server.metric("hipvit_requests_total", outcome="overloaded") == statuses[429]
    assert server.metric("hipvit_shed_images_total") == statuses[429]
    assert server.metric("hipvit_queue_images") == 0
    print(f"overload: of 5000 requests {statuses[200]} were served, {statuses[429]} told to come again, none lost")
    server.stop()


def restart(hipvit):
    server = Server(hipvit, "--device", "cpu")
    wanted = expected(server)
    answered, again, kills, failures = [], [], 5, []
    done = threading.Event()

    def work(number, state):
        # Without a server nobody would be served.
        while not failures:
            client = state.setdefault("client", Client(server))
            try:
                status, _, answer = client.infer(number, number % 10)
            except (OSError, http.client.HTTPException, ValueError):
                again.append(number)
                time.sleep(random.uniform(0.01, 0.05))
                continue
            assert status == 200, answer
            check(answer, number, number % 10, wanted)
            answered.append(number)
            return

    def kill():
        try:
            for _ in range(kills):
                # In the middle of the load, whenever that is.
                seen = len(answered)
                while len(answered) < seen + 300 and not done.is_set():
                    time.sleep(0.001)
                server.kill()
                # The port is free at once.
                server.start()
        except BaseException as error:
            failures.append(error)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        clients(8, 3000, work)
    finally:
        done.set()
        killer.join()
    if failures:
        raise failures[0]
    assert sorted(answered) == list(range(3000)), "an answer is missing or came twice"
    assert again, "no request was hit"
    print(f"restart: killed {kills} times; 3000 requests answered once each, {len(again)} tries again")
    server.stop()


def lost(hipvit):
    server = Server(hipvit, "--device", "hip:0,1", "--reproducible", "--max-batch", "4")
    wanted = expected(server)
    requests = 0
    # Until the fault has come.
    while server.metric("hipvit_lost_instances_total") == 0:
        clients(8, 100, served(server, wanted))
        requests += 100
        assert requests < 20_000, "no device was lost"
    clients(8, 100, served(server, wanted))
    assert server.metric("hipvit_lost_instances_total") == 1
    assert server.metric("hipvit_instances") == 1
    assert server.get("/v2/health/ready")[0] == 200
    retried = int(server.metric("hipvit_retried_images_total"))
    print(f"lost: one of two GPUs lost under load; {requests + 100} requests served, {retried} images run again on the other")
    server.stop()


if __name__ == "__main__":
    scenario, program = sys.argv[1:]
    {"memory": memory, "overload": overload, "restart": restart, "lost": lost}[scenario](os.path.abspath(program))
