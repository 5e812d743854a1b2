//! `int8_gemm`: an int8 linear layer, with a fused `dequantize`.

use super::activation_code::activation_code;
use super::bindings::{INT8_GEMM_THREADS, INT8_GEMM_TILE, Int8GemmArgs};
use super::{
    Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, bytes, extent, visit_epilogue,
};
use crate::ops::Activation;

/// Returns true if the architecture has int8 matrix instructions that the kernel uses.
pub fn has_int8_gemm(arch: &str) -> bool {
    if let Some(digits) = arch.strip_prefix("sm_") {
        let digits = digits.trim_end_matches(|c: char| !c.is_ascii_digit());
        return digits.parse().is_ok_and(|capability: u32| capability >= 80);
    }
    matches!(arch, "gfx908" | "gfx90a" | "gfx942" | "gfx950")
        || ["gfx11", "gfx12"]
            .iter()
            .any(|family| arch.len() == 7 && arch.starts_with(family))
}

impl Int8GemmArgs {
    /// Creates the arguments for `x` `[m, k]`, a weight `[n, k]` and `out` `[m, n]`. `x` and its `ranges` `[m, 2]` come from
    /// [`QuantizeArgs::int8`](super::QuantizeArgs::int8). The weight has `scales` f32 and `column_sums` i32 `[n]`. `bias` `[n]` and
    /// `residual` `[m, n]` may be null. `out` may alias `residual`.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub(crate) fn new(
        [x, weight]: [DeviceAddress; 2],
        [ranges, scales, column_sums]: [DeviceAddress; 3],
        [bias, residual, out]: [DeviceAddress; 3],
        [m, n, k]: [usize; 3],
        activation: Option<Activation>,
    ) -> Result<Self, KernelError> {
        Ok(Self {
            x,
            weight,
            ranges,
            scales,
            column_sums,
            bias,
            residual,
            out,
            rows: extent(m)?,
            channels: extent(n)?,
            inner: extent(k)?,
            activation: activation_code(activation) as u32,
        })
    }
}

// SAFETY: see hip/int8_gemm.hip. Elements beyond the last row, channel or inner element are neither read nor written.
unsafe impl KernelArguments for Int8GemmArgs {
    const FILE: &'static str = "int8_gemm";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        if self.channels == 0 {
            return Err("has rows without elements".into());
        }
        let tiles = |extent: u32| u64::from(extent.div_ceil(INT8_GEMM_TILE));
        target.blocks(tiles(self.rows) * tiles(self.channels), INT8_GEMM_THREADS)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let [m, n, k] = [self.rows, self.channels, self.inner];
        visit(Access::read("x", self.x, bytes(1, &[m, k])));
        visit(Access::read("weight", self.weight, bytes(1, &[n, k])));
        visit(Access::read("ranges", self.ranges, bytes(4, &[m, 2])));
        visit(Access::read("scales", self.scales, bytes(4, &[n])));
        visit(Access::read("column_sums", self.column_sums, bytes(4, &[n])));
        let epilogue = [self.bias, self.residual, self.out];
        visit_epilogue(epilogue, [element; 2], [m, n], visit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_have_matrix_cores_for_bytes() {
        for arch in [
            "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1151", "gfx1201", "sm_80", "sm_90",
            "sm_120a",
        ] {
            assert!(has_int8_gemm(arch), "{arch}");
        }
        for arch in ["gfx906", "gfx1030", "gfx11", "sm_75", "sm_"] {
            assert!(!has_int8_gemm(arch), "{arch}");
        }
    }
}
