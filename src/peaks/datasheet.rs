//! Peaks by the vendors' datasheets, dense (without structured sparsity), of one device as HIP or CUDA counts devices.
//!
//! Sources: NVIDIA's datasheets and architecture whitepapers of A100, H100, H200 and L40S; AMD's datasheets and product pages
//! of Instinct MI100 to MI355X, Radeon PRO W7900, RX 7900 and RX 9070. f32 is the rate of NVIDIA's CUDA cores (a GEMM
//! in TF32 is not f32) and of AMD's matrix cores, where they take f32.

use crate::tensor::DType;

/// The peaks of one GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Datasheet {
    /// What its name contains.
    pub name: &'static str,
    f32: f64,
    f16: f64,
    bf16: f64,
    /// Memory bandwidth in GB/s.
    pub gbps: f64,
}

impl Datasheet {
    /// TFLOP/s in `dtype`.
    pub fn tflops(&self, dtype: DType) -> Option<f64> {
        match dtype {
            DType::F32 => Some(self.f32),
            DType::F16 => Some(self.f16),
            DType::BF16 => Some(self.bf16),
            _ => None,
        }
    }
}

const fn gpu(name: &'static str, f32: f64, half: f64, gbps: f64) -> Datasheet {
    Datasheet {
        name,
        f32,
        f16: half,
        bf16: half,
        gbps,
    }
}

/// The first whose name is in the device's: special forms before the plain one.
const DATASHEETS: [Datasheet; 28] = [
    // NVIDIA, Hopper. The NVL forms are PCIe cards.
    gpu("GH200", 67.0, 989.5, 4000.0),
    gpu("H200 NVL", 60.0, 835.5, 4800.0),
    gpu("H200", 67.0, 989.5, 4800.0),
    gpu("H100 NVL", 60.0, 835.5, 3900.0),
    gpu("H100 PCIe", 51.0, 756.5, 2000.0),
    gpu("H100", 67.0, 989.5, 3350.0),
    // Ampere and Ada.
    gpu("A100-SXM4-80GB", 19.5, 312.0, 2039.0),
    gpu("A100 80GB PCIe", 19.5, 312.0, 1935.0),
    gpu("A100", 19.5, 312.0, 1555.0),
    gpu("L40S", 91.6, 362.05, 864.0),
    // AMD, CDNA 4, 3, 2, 1. MI250 and MI250X are two devices each: half of the card's peaks.
    gpu("MI355X", 157.3, 2516.6, 8000.0),
    gpu("MI350X", 144.2, 2306.9, 8000.0),
    gpu("MI325X", 163.4, 1307.4, 6000.0),
    gpu("MI300X", 163.4, 1307.4, 5300.0),
    gpu("MI300A", 122.6, 980.6, 5300.0),
    gpu("MI250X", 47.9, 191.5, 1638.4),
    gpu("MI250", 45.3, 181.0, 1638.4),
    gpu("MI210", 45.3, 181.0, 1638.4),
    Datasheet {
        name: "MI100",
        f32: 46.1,
        f16: 184.6,
        bf16: 92.3,
        gbps: 1228.8,
    },
    // RDNA 4 and 3. f32 by dual issue.
    gpu("RX 9070 XT", 48.7, 195.0, 640.0),
    gpu("RX 9070 GRE", 34.3, 137.0, 432.0),
    gpu("RX 9070", 36.1, 145.0, 640.0),
    gpu("RX 7900 XTX", 61.4, 122.8, 960.0),
    gpu("RX 7900 XT", 51.5, 103.0, 800.0),
    gpu("RX 7900 GRE", 46.0, 92.0, 576.0),
    gpu("PRO W7900", 61.3, 122.6, 864.0),
    gpu("PRO W7800", 45.2, 90.5, 576.0),
    gpu("RX 7800 XT", 37.3, 74.7, 624.0),
];

/// The datasheet of a GPU of this name, where we have it.
pub fn datasheet(device: &str) -> Option<Datasheet> {
    let device = device.to_uppercase();
    let found = DATASHEETS
        .iter()
        .find(|sheet| device.contains(&sheet.name.to_uppercase()));
    found.copied()
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
        assert_eq!(datasheet("NVIDIA H200").unwrap().tflops(DType::U8), None);
    }

    /// Else the special form would never be found.
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
