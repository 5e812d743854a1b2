"""What needs no PyTorch: python3 -m unittest discover -s benches/peers -t benches"""

import io
import json
import math
import stat
import sys
import tempfile
import textwrap
import unittest
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace

from peers import cli, rows
from peers.participants import Failed, Hipvit, Missing, Noise

DEVICE = {"kind": "cpu", "name": "a CPU", "arch": "x86_64", "index": 0}


def made(repetitions, batch=2, inner=None, **more):
    of = [rows.times(values, batch) for values in repetitions]
    only = [None] * len(of) if inner is None else [rows.times(values, batch) for values in inner]
    facts = {"engine": "e", "engine_version": "1", "model": "m", "dtype": "f32", "threads": 1, "options": {}, "device": DEVICE}
    facts |= {"environment": {"date": "2026-11-22"}, "flops_per_image": 1e9, **more}
    return rows.row(batch=batch, end_to_end=of, device_only=only, **facts)


class Times(unittest.TestCase):
    def test_quantiles_are_values_that_were_measured(self):
        of = rows.times([float(n) for n in range(100, 0, -1)], 4)
        self.assertEqual((of["runs"], of["min_ms"], of["p50_ms"], of["p90_ms"], of["p99_ms"]), (100, 1, 50.5, 90, 99))
        self.assertAlmostEqual(of["images_per_s"], 4e3 / 50.5)
        self.assertEqual(rows.times([3.0], 1)["p99_ms"], 3.0)

    def test_what_is_no_time_is_refused(self):
        for values in ([], [0.0], [-1.0], [math.nan], [math.inf]):
            with self.subTest(values), self.assertRaises(ValueError):
                rows.times(values, 1)

    def test_repetitions_are_combined_by_their_medians(self):
        row = made([[10.0] * 3, [12.0] * 5, [11.0] * 4])
        self.assertEqual(row["end_to_end"]["p50_ms"], 11)
        self.assertEqual((row["end_to_end"]["runs"], row["end_to_end"]["min_ms"]), (12, 10))
        self.assertEqual(row["repeats"], [10, 12, 11])
        self.assertAlmostEqual(row["noise"], 1 / 11)
        self.assertIsNone(made([[10.0]])["noise"])


class Row(unittest.TestCase):
    FIELDS = """schema engine engine_version model batch dtype threads options device environment end_to_end device_only
        flops_per_image peak mfu_datasheet mfu_measured gbps memory power copy_in steps repeats noise""".split()

    def test_it_has_every_field_and_null_for_what_is_unknown(self):
        row = made([[10.0]])
        self.assertEqual(list(row), self.FIELDS)
        self.assertEqual(json.loads(json.dumps(row, allow_nan=False)), row)
        self.assertIsNone(row["device_only"])
        self.assertEqual(set(row["memory"].values()) | set(row["power"].values()) | set(row["peak"].values()), {None})

    def test_figures_come_from_the_device_alone_where_it_was_timed(self):
        peak = {"datasheet_tflops": 1.0, "measured_tflops": 0.5}
        row = made([[4.0], [4.0]], inner=[[2.0], [2.0]], peak=peak)
        # 1 GFLOP per image, 1,000 images per second.
        self.assertAlmostEqual(row["mfu_datasheet"], 1.0)
        self.assertAlmostEqual(row["mfu_measured"], 2.0)
        self.assertEqual(row["repeats"], [4, 4])
        self.assertAlmostEqual(made([[4.0]], peak=peak)["mfu_datasheet"], 0.5)
        power = made([[4.0]], power={"watts": 500, "joules_per_image": 0.5})["power"]
        self.assertAlmostEqual(power["gflops_per_watt"], 2.0)

    def test_an_unknown_kind_of_device_is_refused(self):
        with self.assertRaises(ValueError):
            made([[1.0]], device={**DEVICE, "kind": "tpu"})

    def test_files_grow_and_bad_lines_are_named(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.jsonl"
            self.assertEqual(rows.read(path), [])
            rows.append(path, [made([[1.0]])])
            rows.append(path, [made([[1.0]], batch=8), made([[1.0]], batch=9)])
            self.assertEqual([row["batch"] for row in rows.read(path)], [2, 8, 9])
            self.assertEqual(rows.key(rows.read(path)[0]), ("e", "m", 2, "f32", "cpu"))
            for bad in ("{", "[]", '{"schema": "other/1"}'):
                path.write_text("\n" + bad + "\n")
                with self.subTest(bad), self.assertRaisesRegex(SystemExit, "rows.jsonl:2: "):
                    rows.read(path)


FAKE = """
    #!{python}
    import json, os, sys
    command, options = sys.argv[1], sys.argv[2:]
    if command == "--version":
        print("hipvit 0")
    elif command == "bench":
        batch = int(options[options.index("--batch") + 1])
        if batch == 13:
            sys.exit("out of\\nmemory")
        open({log!r}, "a").write("hipvit\\n")
        quick = options[options.index("--power-seconds") + 1] == "0"
        assert quick == ("--no-peaks" in options)
        count = len(open({log!r}).read().split())
        times = dict(runs=int(options[options.index("--runs") + 1]), images_per_s=0, min_ms=1, mean_ms=1, p50_ms=float(count), p90_ms=2, p99_ms=2)
        print(json.dumps(dict(schema="hipvit.bench/1", engine="hipvit", model="dir", batch=batch, dtype="f32", end_to_end=times,
            device_only=None, flops_per_image=7e9, mfu_datasheet=0.5, peak=dict(datasheet_tflops=None if quick else 9.0), device=dict(kind="cpu"), extra=1)))
    elif command == "preprocess":
        open(options[options.index("--output") + 1], "w").write("pixels")
    elif command == "classify":
        assert open(options[0], "rb").read(4)[1:] == b"PNG"
        print(json.dumps(dict(logits=[1.0, -2.0])))
"""


class FakePeer:
    """Takes turns as a worker would, and writes into the same log as the fake program."""

    longest = 0.0

    def __init__(self, name, log, logits=(1.0, -2.0), fails=False):
        self.name, self.log, self.answer, self.fails = name, log, list(logits), fails

    def prepare(self, model, batch, dtype, limit):
        if self.fails:
            raise Failed("does not\ncompile")

    def run(self, seconds, runs, least, last):
        with open(self.log, "a") as log:
            log.write(self.name + "\n")
        return {"end_to_end": rows.times([4.0], 2), "device_only": None}

    def logits(self, noise):
        assert noise.pixels.read_text() == "pixels"
        return self.answer

    def row(self, repetitions, shared, device, environment, power_seconds):
        return made([[4.0]] * len(repetitions), engine=self.name, flops_per_image=shared.get("flops_per_image"), peak=shared["peak"])

    def finish(self):
        pass


class Turns(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.log = str(self.folder / "log")
        program = self.folder / "hipvit"
        program.write_text(textwrap.dedent(FAKE).strip().format(python=sys.executable, log=self.log) + "\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        self.hipvit = Hipvit(str(program), "cpu", 2, [])

    def measure(self, *peers, batch=2):
        options = SimpleNamespace(repeat=3, seconds=0.0, runs=4, power_seconds=2.0, prepare_limit=60.0, budget=None)
        coordinator = cli.Coordinator(options, [self.hipvit, *peers], DEVICE, {}, {})
        cell = cli.Cell(Path("dir"), "vit", batch, "f32")
        with redirect_stderr(io.StringIO()), redirect_stdout(io.StringIO()):
            result = coordinator.measure(cell, coordinator.participants, Noise(self.folder))
            cli.show(cell, result)
        return {row["engine"]: row for row in result}

    def test_engines_take_turns(self):
        result = self.measure(FakePeer("a", self.log), FakePeer("b", self.log))
        # Once more for hipvit, which prepares by a run.
        self.assertEqual(Path(self.log).read_text().split(), ["hipvit"] + ["hipvit", "a", "b"] * 3)
        row = result["hipvit"]
        # Its fake times are the number of lines so far.
        self.assertEqual((row["model"], row["extra"], row["repeats"]), ("vit", 1, [2.0, 5.0, 8.0]))
        self.assertEqual((row["end_to_end"]["p50_ms"], row["end_to_end"]["runs"]), (5.0, 12))
        self.assertAlmostEqual(row["end_to_end"]["images_per_s"], 2e3 / 5)
        self.assertAlmostEqual(row["mfu_datasheet"], 0.5 * 8 / 5)
        # The peers are measured by hipvit's peaks and operations.
        self.assertEqual((result["a"]["peak"]["datasheet_tflops"], result["a"]["flops_per_image"]), (9.0, 7e9))
        self.assertEqual(result["b"]["options"]["logits_difference_from_hipvit"], 0)

    def test_an_engine_that_fails_or_computes_something_else_gets_an_error(self):
        wrong = FakePeer("wrong", self.log, logits=(1.0, -1.9))
        result = self.measure(FakePeer("fails", self.log, fails=True), wrong, FakePeer("nan", self.log, logits=(1.0, math.nan)), FakePeer("good", self.log))
        self.assertEqual(result["fails"]["error"], "does not compile")
        self.assertIn("logits differ from hipvit's by 1.00e-01", result["wrong"]["error"])
        self.assertIn("logits differ", result["nan"]["error"])
        self.assertNotIn("error", result["good"])
        self.assertEqual(set(Path(self.log).read_text().split()), {"hipvit", "good"})

    def test_the_program_may_fail_or_be_missing(self):
        result = self.measure(FakePeer("a", self.log), batch=13)
        self.assertEqual(result["hipvit"]["error"], "hipvit bench: out of memory")
        self.assertNotIn("error", result["a"])
        with self.assertRaises(Missing):
            Hipvit(str(self.folder / "nothing"), "cpu", 1, []).start()

    def test_the_device_has_hipvits_name(self):
        self.assertEqual([Hipvit("x", name, 1, []).target for name in ("cpu", "cuda:0", "cuda:3")], ["cpu", "hip:0", "hip:3"])


class CommandLine(unittest.TestCase):
    def test_a_wrong_command_line_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "config.json").write_text('{"architecture": "vit_x"}')
            self.assertEqual(cli.architecture(Path(folder)), "vit_x")
            with tempfile.TemporaryDirectory() as in_float8:
                text = '{"architecture": "vit_x", "quantization_config": {}}'
                (Path(in_float8) / "config.json").write_text(text)
                self.assertEqual(cli.architecture(Path(in_float8)), "vit_x fp8")
            options = cli.parse([folder, "--batch", "1,8", "--dtype", "bf16,f32", "--engines", "openvino"])
            self.assertEqual((options.batch, options.dtype, options.engines), ([1, 8], ["bf16", "f32"], ["openvino"]))
            for wrong in ([], ["nowhere"], [folder, "--batch", "0"], [folder, "--dtype", "f8"], [folder, "--engines", "x"]):
                with self.subTest(wrong), self.assertRaises(SystemExit), redirect_stderr(io.StringIO()):
                    cli.parse(wrong)

    def test_nothing_starts_that_would_outlast_the_budget(self):
        options = SimpleNamespace(repeat=3, seconds=1.0, runs=None, power_seconds=2.0, prepare_limit=60.0, budget=60.0)
        coordinator = cli.Coordinator(options, [], DEVICE, {}, {})
        slow, fast = (FakePeer(name, "log") for name in ("pytorch-max-autotune", "pytorch-eager"))
        self.assertGreater(coordinator.expected([slow]), coordinator.left())
        self.assertLess(coordinator.expected([fast]), coordinator.left())


if __name__ == "__main__":
    unittest.main()
