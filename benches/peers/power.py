"""Power, clock and load of a GPU while something runs: by NVML (nvidia-ml-py), AMD SMI (amdsmi) or nvidia-smi, whichever is
there. None of them: nothing is known, which is no error."""

import statistics
import subprocess
import threading
import time
from collections.abc import Callable


class Sensor:
    """What a library knows of one GPU; each of its readings may be missing."""

    # Seconds between samples.
    interval = 0.02

    def joules(self) -> float | None:
        """The energy used since some moment."""
        return None

    def sample(self) -> dict[str, float | None]:
        """`watts`, `busy_percent` and `clock_mhz` now."""
        raise NotImplementedError


def known(read: Callable[[], float]) -> float | None:
    """A reading that not every GPU has."""
    try:
        value = read()
        return float(value) if value is not None else None
    except Exception:  # noqa: BLE001: each library has errors of its own
        return None


class Nvml(Sensor):
    def __init__(self, bus: str | None):
        import pynvml

        pynvml.nvmlInit()
        self.nvml = pynvml
        if pynvml.nvmlDeviceGetCount() == 1:
            # A virtual machine may show another address.
            self.handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        else:
            self.handle = pynvml.nvmlDeviceGetHandleByPciBusId(bus)

    def joules(self):
        return known(lambda: self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.handle) / 1e3)

    def sample(self):
        nvml, handle = self.nvml, self.handle
        return {
            "watts": known(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3),
            "busy_percent": known(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
            "clock_mhz": known(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
        }


class AmdSmi(Sensor):
    def __init__(self, bus: str | None):
        import amdsmi

        amdsmi.amdsmi_init()
        self.smi = amdsmi
        handles = amdsmi.amdsmi_get_processor_handles()
        self.handle = handles[0] if len(handles) == 1 else amdsmi.amdsmi_get_processor_handle_from_bdf(bus)

    def joules(self):
        def read():
            count = self.smi.amdsmi_get_energy_count(self.handle)
            # In microjoules; the first name is from older releases.
            return count.get("power", count.get("energy_accumulator")) * count["counter_resolution"] / 1e6

        return known(read)

    def sample(self):
        smi, handle = self.smi, self.handle

        def watts():
            power = smi.amdsmi_get_power_info(handle)
            return next(power[name] for name in ("current_socket_power", "average_socket_power") if isinstance(power.get(name), (int, float)))

        return {
            "watts": known(watts),
            "busy_percent": known(lambda: smi.amdsmi_get_gpu_activity(handle)["gfx_activity"]),
            "clock_mhz": known(lambda: smi.amdsmi_get_clock_info(handle, smi.AmdSmiClkType.GFX)["clk"]),
        }


class NvidiaSmi(Sensor):
    interval = 0.1

    def __init__(self, bus: str | None):
        self.command = ["nvidia-smi", f"--id={bus or 0}", "--format=csv,noheader,nounits", "--query-gpu=power.draw,utilization.gpu,clocks.sm"]
        self.sample()

    def sample(self):
        text = subprocess.run(self.command, capture_output=True, text=True, check=True, timeout=10).stdout
        fields = [known(lambda field=field: float(field)) for field in text.strip().split(",")]
        return dict(zip(("watts", "busy_percent", "clock_mhz"), fields, strict=True))


def sensor(bus: str | None) -> Sensor | None:
    """Of the GPU at a PCI address (0000:1b:00.0), or of the only one."""
    for kind in (Nvml, AmdSmi, NvidiaSmi):
        try:
            return kind(bus)
        except Exception:  # noqa: BLE001: not installed, or of another vendor
            continue
    return None


def measure(of: Sensor | None, run: Callable[[], int], seconds: float) -> dict[str, float | None]:
    """POWER of the schema while `run`, which returns how many images it ran, is called again and again."""
    if of is None:
        return {}
    samples: list[dict[str, float | None]] = []
    done = threading.Event()

    def watch():
        while not done.wait(of.interval):
            samples.append(of.sample())

    # Skip the first moments: sensors average over some of them.
    start = time.perf_counter()
    while time.perf_counter() < start + seconds / 4:
        run()
    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    images, start, before = 0, time.perf_counter(), of.joules()
    while time.perf_counter() < start + seconds:
        images += run()
    elapsed, after = time.perf_counter() - start, of.joules()
    done.set()
    thread.join()

    def mean(name: str) -> float | None:
        values = [sample[name] for sample in samples if sample.get(name) is not None]
        return statistics.fmean(values) if values else None

    watts = mean("watts")
    if before is not None and after is not None and after > before:
        watts = (after - before) / elapsed
    return {
        "watts": watts,
        "busy_percent": mean("busy_percent"),
        "clock_mhz": mean("clock_mhz"),
        "joules_per_image": watts * elapsed / images if watts else None,
    }
