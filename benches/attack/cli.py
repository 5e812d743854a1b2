"""The command line, and the tables."""

import argparse
import json
import resource
import sys
from pathlib import Path

from .kinds import GROUPS, KINDS
from .server import measure


def seconds(value: float | None) -> str:
    if value is None:
        return "failed"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def mebibytes(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} MiB"


def cells(row: dict | None) -> list[str]:
    """Returns the most memory, the longest time without an answer, the neighbours' p99 and failures, the probes' p99, and the exit."""
    if row is None:
        return [""] * 6
    if not row["started"]:
        return ["-"] * 5 + [f"{row['exit']} at the start"]
    return [
        mebibytes(row["peak_mib"]),
        "ended" if row["died"] else seconds(row["without_answer_s"]),
        seconds(row["neighbour_p99_s"]),
        f"{row['neighbour_failures']} of {row['neighbour_requests']}",
        seconds(row["health_p99_s"]),
        f"**{row['exit']}**" if row["died"] else f"{row['exit']}, {seconds(row['exit_seconds'])}",
    ]


def line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def worst(rows: list[dict], name: str) -> str:
    """The largest figure of some rows. What failed is larger than any."""
    if not rows:
        return ""
    if not all(row["started"] for row in rows):
        return "not started"
    values = [row[name] for row in rows]
    if name == "peak_mib":
        died = "**" if any(row["died"] for row in rows) else ""
        return f"{died}{mebibytes(max(values))}{died}"
    if name == "without_answer_s" and any(row["died"] for row in rows):
        return "**ended**"
    return seconds(None if None in values else max(values))


def compare(paths: list[Path]) -> None:
    """Prints the worst of each group of kinds, before and after."""
    files = [[json.loads(row) for row in path.read_text().splitlines()] for path in paths]
    columns = {
        "peak_mib": "most memory",
        "without_answer_s": "without an answer",
        "neighbour_p99_s": "neighbours' p99",
        "health_p99_s": "health p99",
    }
    print(line(["kind", *(f"{column}, before | after" for column in columns.values())]))
    print(line(["---"] * (1 + 2 * len(columns))))
    for group, about in GROUPS.items():
        names = {kind.name for kind in KINDS if kind.group() == group}
        rows = [[row for row in file if row["kind"] in names] for file in files]
        print(line([f"`{group}`: {about}", *(worst(some, name) for name in columns for some in rows)]))


def main() -> int:
    kinds = ""
    for group, about in GROUPS.items():
        kinds += f"  {group}: {about}\n    " + ", ".join(kind.name for kind in KINDS if kind.group() == group) + "\n"
    parser = argparse.ArgumentParser(
        prog="python3 benches/attack", description="Attacks `hipvit serve` as hostile clients do.", epilog=f"kinds:\n{kinds}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("program", nargs="?", type=Path, help="hipvit, with the feature serve")
    parser.add_argument("--only", action="append", metavar="KIND", help="run the kinds whose names begin so; repeatable")
    parser.add_argument("--seconds", type=float, default=10, help="time of most attacks (default 10)")
    parser.add_argument("--memory", type=float, default=6, metavar="GIB", help="address space of the server (default 6)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="append each row to FILE")
    parser.add_argument("--compare", nargs=2, type=Path, metavar="FILE", help="print two files' rows beside each other")
    parser.add_argument("--provider", type=Path, metavar="LIB", help="libhip_emu.so: run the kinds on an emulated GPU, too")
    arguments = parser.parse_args()
    if arguments.compare:
        compare(arguments.compare)
        return 0
    if not arguments.program:
        parser.error("name the program, or two files to compare")
    chosen = [kind for kind in KINDS if not arguments.only or kind.name.startswith(tuple(arguments.only))]
    if not chosen:
        parser.error(f"--only: no kind begins with {' or '.join(arguments.only)}")
    # For the attackers' own connections.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(line(["kind", "most memory", "5 s after", "without an answer", "neighbours' p50", "p99", "failures", "health p99", "exit"]))
    print(line(["---"] * 9), flush=True)
    for kind in chosen:
        if kind.provider:
            if not arguments.provider:
                print(f"{kind.name}: skipped without --provider", file=sys.stderr)
                continue
            kind.environment |= {"HIPVIT_PROVIDER": str(arguments.provider.resolve()), "HIP_EMU_ARCH": "gfx942"}
        row = measure(arguments.program.resolve(), kind, int(arguments.memory * (1 << 30)), arguments.seconds)
        if arguments.json:
            with arguments.json.open("a") as file:
                file.write(json.dumps(row) + "\n")
        memory, *others = cells(row)
        after, p50 = mebibytes(row.get("after_mib")), seconds(row.get("neighbour_p50_s"))
        print(line([kind.name, memory, after, others[0], p50, *others[1:]]), flush=True)
    return 0
