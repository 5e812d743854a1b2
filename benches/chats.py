"""Times chats of `hipvit serve` under load: the time to the first token, the time between tokens, tokens per second, memory and pages of the cache.

    python3 benches/chats.py target/release/hipvit --model tests/golden/generation/trocr_base --image tests/golden/images/wide.png
    python3 benches/chats.py target/release/hipvit --model DIR --image line.png --rates 5,20 --requests 1000 --tokens 64 -- --device hip --dtype bf16 --max-batch 32

Requests arrive at random (exponential gaps) and do not wait for answers. A time to the first token counts from the scheduled arrival, so that a slow server
cannot hide it. Numbers of tokens are mixed: from 1 to `--tokens`, each as likely. Needs Python 3.11 alone.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import random
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Results:
    first: list[float] = field(default_factory=list)
    between: list[float] = field(default_factory=list)
    tokens: int = 0
    failed: list[str] = field(default_factory=list)


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def start(arguments: argparse.Namespace) -> tuple[subprocess.Popen, str]:
    command = [arguments.hipvit, "serve", "--listen", "127.0.0.1:0", "--log", "json", "--model", f"model={arguments.model}", "--queue", "4096", "--backlog", "512"]
    command += ["--max-tokens", str(arguments.tokens), *arguments.serve]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for line in server.stderr:
        # Before the log, a line tells that kernels are compiled.
        event = json.loads(line) if line.startswith("{") else {"message": line}
        if event["message"] == "listening":
            # A full pipe would stop the server.
            threading.Thread(target=server.stderr.read, daemon=True).start()
            return server, event["address"]
    raise SystemExit("the server ended")


async def chat(address: str, body: bytes, scheduled: float, results: Results) -> None:
    host, port = address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        # HTTP/1.0: the answer is not divided into chunks.
        writer.write(b"POST /v1/chat/completions HTTP/1.0\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        status = await reader.readline()
        if b" 200 " not in status:
            results.failed.append(status.decode().strip())
            return
        last = None
        async for line in reader:
            if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                continue
            event = json.loads(line[len(b"data: ") :])
            if event.get("usage"):
                results.tokens += event["usage"]["completion_tokens"]
            if not event.get("choices") or not event["choices"][0]["delta"].get("content"):
                continue
            now = time.perf_counter()
            if last is None:
                results.first.append(now - scheduled)
            else:
                results.between.append(now - last)
            last = now
    finally:
        writer.close()


async def load(address: str, arguments: argparse.Namespace, rate: float) -> tuple[Results, float]:
    results, chosen = Results(), random.Random(1)
    url = "data:image/png;base64," + base64.b64encode(arguments.image.read_bytes()).decode()
    content = [{"type": "image_url", "image_url": {"url": url}}]
    if arguments.prompt:
        content.append({"type": "text", "text": arguments.prompt})
    request = {"model": "model", "stream": True, "stream_options": {"include_usage": True}, "messages": [{"role": "user", "content": content}]}
    begin, at, tasks = time.perf_counter(), 0.0, []
    for _ in range(arguments.requests):
        at += chosen.expovariate(rate)
        await asyncio.sleep(max(0.0, begin + at - time.perf_counter()))
        body = json.dumps(request | {"max_tokens": chosen.randint(1, arguments.tokens)}).encode()
        tasks.append(asyncio.create_task(chat(address, body, begin + at, results)))
    await asyncio.gather(*tasks)
    return results, time.perf_counter() - begin


def metric(address: str, name: str) -> float:
    text = urllib.request.urlopen(f"http://{address}/metrics").read().decode()
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name + "{"))


def resident(process: int) -> int:
    return next(int(line.split()[1]) for line in Path(f"/proc/{process}/status").read_text().splitlines() if line.startswith("VmRSS")) // 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hipvit", help="the program")
    parser.add_argument("--model", required=True)
    parser.add_argument("--image", type=Path, required=True)
    parser.add_argument("--prompt")
    parser.add_argument("--rates", default="10", help="requests per second of each load")
    parser.add_argument("--requests", type=int, default=1000, help="of each load")
    parser.add_argument("--tokens", type=int, default=32, help="maximum number of a text")
    # After `--`: options for hipvit serve.
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    arguments = parser.parse_args(sys.argv[1:end])
    arguments.serve = sys.argv[end + 1 :]
    server, address = start(arguments)
    try:
        print(f"{arguments.requests} requests per load, 1 to {arguments.tokens} tokens; times in ms")
        print(f"{'requests/s':>10} {'tokens/s':>9} {'first p50':>9} {'first p99':>9} {'token p50':>9} {'token p99':>9} {'failed':>6} {'MiB':>5} {'pages left':>10}")
        for rate in arguments.rates.split(","):
            results, seconds = asyncio.run(load(address, arguments, float(rate)))
            first, between = ([percentile(times, share) * 1000 for share in (0.5, 0.99)] for times in (results.first, results.between))
            pages = metric(address, "hipvit_cache_pages_used")
            print(
                f"{float(rate):>10.1f} {results.tokens / seconds:>9.1f} {first[0]:>9.1f} {first[1]:>9.1f} {between[0]:>9.1f} {between[1]:>9.1f}"
                f" {len(results.failed):>6} {resident(server.pid):>5} {pages:>10.0f}",
                flush=True,
            )
            for reason, count in Counter(results.failed).items():
                print(f"  {count} × {reason}")
    finally:
        server.terminate()
        server.wait(60)


main()
