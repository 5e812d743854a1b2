//! Peaks by the vendors' datasheets, dense (without structured sparsity). A row is one device as HIP or CUDA
//! counts devices, or one socket of a CPU. Each row names its document.
//!
//! - f32 is the rate of NVIDIA's CUDA cores (a GEMM in TF32 is not f32), and of AMD's matrix cores if they
//!   take f32.
//! - If a vendor states f16 on tensor cores for two kinds of accumulator, the row has the rate with f32.
//! - CPU vendors state no FLOP/s. The rows multiply cores, base clock and f32 operations per core and cycle
//!   by the microarchitecture's FMA units. The bandwidth is channels × transfers × 8 bytes.

use serde::Serialize;

use hipvit::error::{Error, Result};
use hipvit::nearest::{nearest, plain};
use hipvit::tensor::DType;

/// Kind of device that a datasheet describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A GPU.
    Gpu,
    /// One socket of a CPU.
    Cpu,
}

/// Peaks of one GPU or CPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Datasheet {
    /// Part of the device name that identifies it.
    pub name: &'static str,
    /// Kind of device.
    pub kind: Kind,
    f32: f64,
    f16: Option<f64>,
    bf16: Option<f64>,
    /// Memory bandwidth in GB/s.
    pub gbps: f64,
    /// Memory in GB. `None` for a CPU, where it depends on the machine.
    pub memory_gb: Option<f64>,
    /// Document of the vendor.
    pub source: &'static str,
}

impl Datasheet {
    /// Returns the TFLOP/s in `dtype`. For a CPU only f32, the dtype in which hipvit computes there.
    pub fn tflops(&self, dtype: DType) -> Option<f64> {
        match dtype {
            DType::F32 => Some(self.f32),
            DType::F16 => self.f16,
            DType::BF16 => self.bf16,
            _ => None,
        }
    }
}

const fn gpu(
    name: &'static str,
    f32: f64,
    half: f64,
    gbps: f64,
    memory_gb: f64,
    source: &'static str,
) -> Datasheet {
    Datasheet {
        name,
        kind: Kind::Gpu,
        f32,
        f16: Some(half),
        bf16: Some(half),
        gbps,
        memory_gb: Some(memory_gb),
        source,
    }
}

/// `flops` is the number of f32 operations per core and cycle. Memory has `channels` with `mts` million
/// transfers per second.
const fn cpu(
    name: &'static str,
    (cores, ghz, flops): (f64, f64, f64),
    (channels, mts): (f64, f64),
    source: &'static str,
) -> Datasheet {
    Datasheet {
        name,
        kind: Kind::Cpu,
        f32: cores * ghz * flops / 1e3,
        f16: None,
        bf16: None,
        gbps: channels * mts * 8.0 / 1e3,
        memory_gb: None,
        source,
    }
}

/// f32 operations per core and cycle: two FMA units of 256 bits, or of 512 bits.
const AVX2: f64 = 32.0;
const AVX512: f64 = 64.0;

/// Datasheets. The first whose name is part of the device's name is used, so special forms come before the
/// plain one.
#[rustfmt::skip]
const DATASHEETS: [Datasheet; 43] = [
    // NVIDIA, Blackwell and Hopper. The NVL forms are PCIe cards.
    gpu("B200", 75.0, 2250.0, 7700.0, 180.0, "NVIDIA HGX platform page, HGX B200, an eighth"),
    gpu("GH200", 67.0, 989.5, 4000.0, 96.0, "NVIDIA GH200 Grace Hopper Superchip datasheet, HBM3"),
    gpu("H200 NVL", 60.0, 835.5, 4800.0, 141.0, "NVIDIA H200 Tensor Core GPU datasheet"),
    gpu("H200", 67.0, 989.5, 4800.0, 141.0, "NVIDIA H200 Tensor Core GPU datasheet"),
    gpu("H100 NVL", 60.0, 835.5, 3900.0, 94.0, "NVIDIA H100 NVL product brief"),
    gpu("H100 PCIe", 51.0, 756.5, 2000.0, 80.0, "NVIDIA H100 Tensor Core GPU datasheet"),
    gpu("H100", 67.0, 989.5, 3350.0, 80.0, "NVIDIA H100 Tensor Core GPU datasheet"),
    // Ampere and Ada, and the RTX cards of Ada and Blackwell.
    gpu("A100-SXM4-80GB", 19.5, 312.0, 2039.0, 80.0, "NVIDIA A100 Tensor Core GPU datasheet"),
    gpu("A100 80GB PCIe", 19.5, 312.0, 1935.0, 80.0, "NVIDIA A100 Tensor Core GPU datasheet"),
    gpu("A100", 19.5, 312.0, 1555.0, 40.0, "NVIDIA A100 Tensor Core GPU architecture whitepaper"),
    gpu("L40S", 91.6, 362.05, 864.0, 48.0, "NVIDIA L40S datasheet"),
    gpu("L40", 90.5, 181.05, 864.0, 48.0, "NVIDIA L40 datasheet"),
    gpu("NVIDIA L4", 30.3, 121.0, 300.0, 24.0, "NVIDIA L4 Tensor Core GPU datasheet"),
    gpu("RTX 5090", 104.8, 209.5, 1792.0, 32.0, "NVIDIA RTX Blackwell GPU architecture whitepaper"),
    gpu("RTX 4090", 82.6, 165.2, 1008.0, 24.0, "NVIDIA Ada GPU architecture whitepaper"),
    // AMD, CDNA 4, 3, 2, 1. MI250 and MI250X are two devices each, so a row is half of the card.
    gpu("MI355X", 157.3, 2516.6, 8000.0, 288.0, "AMD Instinct MI355X data sheet"),
    gpu("MI350X", 144.2, 2306.9, 8000.0, 288.0, "AMD Instinct MI350X data sheet"),
    gpu("MI325X", 163.4, 1307.4, 6000.0, 256.0, "AMD Instinct MI325X data sheet"),
    gpu("MI300X", 163.4, 1307.4, 5300.0, 192.0, "AMD Instinct MI300X data sheet"),
    gpu("MI300A", 122.6, 980.6, 5300.0, 128.0, "AMD Instinct MI300A data sheet"),
    gpu("MI250X", 47.9, 191.5, 1638.4, 64.0, "AMD Instinct MI200 series data sheet"),
    gpu("MI250", 45.3, 181.0, 1638.4, 64.0, "AMD Instinct MI200 series data sheet"),
    gpu("MI210", 45.3, 181.0, 1638.4, 64.0, "AMD Instinct MI210 data sheet"),
    Datasheet {
        name: "MI100",
        kind: Kind::Gpu,
        f32: 46.1,
        f16: Some(184.6),
        bf16: Some(92.3),
        gbps: 1228.8,
        memory_gb: Some(32.0),
        source: "AMD Instinct MI100 data sheet",
    },
    // RDNA 4 and 3. f32 by dual issue.
    gpu("RX 9070 XT", 48.7, 195.0, 640.0, 16.0, "AMD Radeon RX 9070 XT product page"),
    gpu("RX 9070 GRE", 34.3, 137.0, 432.0, 12.0, "AMD Radeon RX 9070 GRE product page"),
    gpu("RX 9070", 36.1, 145.0, 640.0, 16.0, "AMD Radeon RX 9070 product page"),
    gpu("RX 7900 XTX", 61.4, 122.8, 960.0, 24.0, "AMD Radeon RX 7900 XTX product page"),
    gpu("RX 7900 XT", 51.5, 103.0, 800.0, 20.0, "AMD Radeon RX 7900 XT product page"),
    gpu("RX 7900 GRE", 46.0, 92.0, 576.0, 16.0, "AMD Radeon RX 7900 GRE product page"),
    gpu("PRO W7900", 61.3, 122.6, 864.0, 48.0, "AMD Radeon PRO W7900 data sheet"),
    gpu("PRO W7800", 45.2, 90.5, 576.0, 32.0, "AMD Radeon PRO W7800 data sheet"),
    gpu("RX 7800 XT", 37.3, 74.7, 624.0, 16.0, "AMD Radeon RX 7800 XT product page"),
    // CPUs: Zen 3, 4 and 5, Ice Lake, Sapphire Rapids, Granite Rapids. Zen 4 computes 512 bits in two halves.
    cpu("EPYC 9965", (192.0, 2.25, AVX512), (12.0, 6000.0), "AMD EPYC 9005 series data sheet"),
    cpu("EPYC 9755", (128.0, 2.7, AVX512), (12.0, 6000.0), "AMD EPYC 9005 series data sheet"),
    cpu("EPYC 9654", (96.0, 2.4, AVX2), (12.0, 4800.0), "AMD EPYC 9004 series data sheet"),
    cpu("EPYC 9354", (32.0, 3.25, AVX2), (12.0, 4800.0), "AMD EPYC 9004 series data sheet"),
    cpu("EPYC 7763", (64.0, 2.45, AVX2), (8.0, 3200.0), "AMD EPYC 7003 series data sheet"),
    cpu("Xeon 6980P", (128.0, 2.0, AVX512), (12.0, 6400.0), "Intel Xeon 6980P specifications"),
    cpu("Xeon Platinum 8480+", (56.0, 2.0, AVX512), (8.0, 4800.0), "Intel Xeon Platinum 8480+ specifications"),
    cpu("Xeon Platinum 8380", (40.0, 2.3, AVX512), (8.0, 3200.0), "Intel Xeon Platinum 8380 specifications"),
    cpu("Ryzen 9 9950X", (16.0, 4.3, AVX512), (2.0, 5600.0), "AMD Ryzen 9 9950X product page"),
    cpu("Ryzen 9 7950X", (16.0, 4.5, AVX2), (2.0, 5200.0), "AMD Ryzen 9 7950X product page"),
];

/// Returns all datasheets.
pub fn datasheets() -> &'static [Datasheet] {
    &DATASHEETS
}

/// Returns the datasheet of a GPU with this name, if there is one.
pub fn datasheet(device: &str) -> Option<Datasheet> {
    let device = device.to_uppercase();
    let mut gpus = DATASHEETS.iter().filter(|sheet| sheet.kind == Kind::Gpu);
    let found = gpus.find(|sheet| device.contains(&sheet.name.to_uppercase()));
    found.copied()
}

/// Returns the datasheet of the GPU or CPU that a user names: a device's whole name, or a part that is unique
/// among the rows.
///
/// # Errors
///
/// [`Error::Argument`] with similar names.
pub fn named(name: &str) -> Result<Datasheet> {
    let wanted = plain(name);
    let contained = |sheet: &&Datasheet| wanted.contains(&plain(sheet.name));
    if let Some(sheet) = DATASHEETS.iter().find(contained) {
        return Ok(*sheet);
    }
    let containing = |sheet: &&Datasheet| !wanted.is_empty() && plain(sheet.name).contains(&wanted);
    let matches: Vec<&Datasheet> = DATASHEETS.iter().filter(containing).collect();
    let last = |sheet: &&&Datasheet| plain(sheet.name).ends_with(&format!(" {wanted}"));
    let ending: Vec<&Datasheet> = matches.iter().filter(last).copied().collect();
    match (&matches[..], &ending[..]) {
        ([sheet], _) | (_, [sheet]) => return Ok(**sheet),
        _ => {}
    }
    let mut near: Vec<&str> = matches.iter().map(|sheet| sheet.name).collect();
    if near.is_empty() {
        near = nearest(name, DATASHEETS.iter().map(|sheet| (sheet.name, sheet.name)));
    }
    let reason = if near.is_empty() {
        let all: Vec<&str> = DATASHEETS.iter().map(|sheet| sheet.name).collect();
        format!(
            "there is no datasheet of `{name}`; there is of {}",
            all.join(", ")
        )
    } else {
        format!(
            "there is no datasheet of `{name}`; the nearest: {}",
            near.join(", ")
        )
    };
    Err(Error::argument("gpu", reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_found_by_the_name_that_its_driver_gives() {
        for (device, name, bf16) in [
            ("NVIDIA H200", "H200", 989.5),
            ("NVIDIA H200 NVL", "H200 NVL", 835.5),
            ("NVIDIA H100 80GB HBM3", "H100", 989.5),
            ("NVIDIA GH200 480GB", "GH200", 989.5),
            ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB", 312.0),
            ("AMD Instinct MI300X", "MI300X", 1307.4),
            ("AMD Instinct MI250X / MI250", "MI250X", 191.5),
            ("AMD Radeon RX 7900 XTX", "RX 7900 XTX", 122.8),
        ] {
            let sheet = datasheet(device).unwrap();
            assert_eq!(
                (sheet.name, sheet.tflops(DType::BF16)),
                (name, Some(bf16)),
                "{device}"
            );
        }
        assert_eq!(datasheet("Fake Instinct"), None);
        // A process may have only some cores of a CPU.
        assert_eq!(datasheet("AMD EPYC 9654 96-Core Processor"), None);
        assert_eq!(datasheet("NVIDIA H200").unwrap().tflops(DType::U8), None);
    }

    #[test]
    fn a_person_may_name_a_part_and_is_told_the_nearest() {
        for (name, expected) in [
            ("mi300x", "MI300X"),
            ("AMD Instinct MI300X", "MI300X"),
            ("7900 xtx", "RX 7900 XTX"),
            ("EPYC 9654", "EPYC 9654"),
            ("l4", "NVIDIA L4"),
            ("H100 SXM", "H100"),
        ] {
            assert_eq!(named(name).map(|sheet| sheet.name).ok(), Some(expected), "{name}");
        }
        let refused = |name| named(name).unwrap_err().to_string();
        let text = refused("MI300");
        assert!(
            text.contains("MI300X") && text.contains("MI300A") && !text.contains("H100"),
            "{text}"
        );
        let text = refused("MI301X");
        assert!(
            text.contains("the nearest: ") && text.contains("MI300X"),
            "{text}"
        );
        let text = refused("Voodoo");
        assert!(text.contains("there is of B200"), "{text}");
    }

    /// f32 of Zen 4 at its base clock: 96 cores × 2.4 GHz × 2 FMA units of 8 lanes × 2.
    #[test]
    fn every_row_has_a_source_and_a_cpu_s_peak_follows_from_its_cores() {
        assert!(datasheets().iter().all(|sheet| sheet.source.len() > 10));
        let epyc = named("EPYC 9654").unwrap();
        assert!((epyc.tflops(DType::F32).unwrap() - 7.3728).abs() < 1e-9);
        assert!((epyc.gbps - 460.8).abs() < 1e-9);
        assert_eq!(epyc.tflops(DType::BF16), None);
    }

    /// A row behind a name that contains its own would never be found.
    #[test]
    fn no_name_hides_a_later_one() {
        for (index, later) in DATASHEETS.iter().enumerate() {
            for earlier in &DATASHEETS[..index] {
                assert!(
                    !later.name.contains(earlier.name),
                    "{} hides {}",
                    earlier.name,
                    later.name
                );
            }
        }
    }
}
