//! `sparse_gemm`: a linear layer whose weight is 2:4 sparse and stays packed. The weight keeps two of each four elements along the input
//! channels; matrix cores skip the others.

use super::activation_code::activation_code;
use super::bindings::{
    SPARSE_GEMM_THREADS, SPARSE_GEMM_TILE, SPARSE_INDEX_BYTES, SPARSE_INDEX_CHANNELS, SPARSE_INDEX_DEPTH,
    SparseGemmArgs,
};
use super::{
    Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, bytes, extent, visit_epilogue,
};
use crate::ops::Activation;

const BYTES: usize = SPARSE_INDEX_BYTES as usize;
const CHANNELS: usize = SPARSE_INDEX_CHANNELS as usize;
const DEPTH: usize = SPARSE_INDEX_DEPTH as usize;

/// Order of a packed weight's indices, by the instructions that read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SparseOrder {
    /// `v_smfmac_f32_16x16x32` of CDNA 3 and 4.
    Smfmac,
    /// `mma.sp` of NVIDIA GPUs from compute capability 8.0.
    MmaSp,
}

impl SparseOrder {
    /// Returns the order for an architecture. `None` if it has no sparse matrix instructions.
    pub fn of(arch: &str) -> Option<Self> {
        match arch {
            "gfx942" | "gfx950" => Some(Self::Smfmac),
            _ => {
                let digits = arch
                    .strip_prefix("sm_")?
                    .trim_end_matches(|c: char| !c.is_ascii_digit());
                (digits.parse::<u32>().ok()? >= 80).then_some(Self::MmaSp)
            }
        }
    }

    /// Returns the position of a channel's four bits at `depth` in a block of indices, in units of four bits, lower bits first.
    fn place(self, channel: usize, depth: usize) -> usize {
        match self {
            // Lanes of 16 bits, with a byte per step of 32.
            Self::Smfmac => {
                let lane = depth % 32 / 8 * 16 + channel;
                4 * lane + depth / 32 * 2 + depth % 8 / 4
            }
            // Lanes of 32 bits, with the upper half for the upper channels.
            Self::MmaSp => {
                let lane = channel % 8 * 4 + depth / 16;
                8 * lane + channel / 8 * 4 + depth % 16 / 4
            }
        }
    }
}

/// Returns the offset in bytes of the indices of a 16-bit weight `[n, k]`.
pub fn sparse_indices_at(n: usize, k: usize) -> usize {
    (n * k).next_multiple_of(BYTES)
}

fn indices_bytes(n: usize, k: usize) -> usize {
    n.div_ceil(CHANNELS) * k.div_ceil(DEPTH) * BYTES
}

/// Returns the bytes of a packed 16-bit weight `[n, k]`: 9/16 of the dense weight, if n is a multiple of 16 and k one of 64.
pub fn sparse_bytes(n: usize, k: usize) -> usize {
    sparse_indices_at(n, k) + indices_bytes(n, k)
}

/// Returns the ascending positions of the two of four elements to keep. Prefers elements that are not 0, then the first ones. `None` if
/// more than two are not 0.
fn kept(four: &[f32]) -> Option<[usize; 2]> {
    let mut used = (0..4).filter(|&i| four[i] != 0.0);
    let found = [used.next(), used.next()];
    if used.next().is_some() {
        return None;
    }
    Some(match found {
        [Some(first), Some(second)] => [first, second],
        [Some(0), None] | [None, _] => [0, 1],
        [Some(one), None] => [0, one],
    })
}

/// Packs a weight `[n, k]`: the kept elements, and their indices in `order`. `None` if k is not a multiple of 4, or if more than two of a
/// group of four are not 0.
pub fn pack_sparse(values: &[f32], [n, k]: [usize; 2], order: SparseOrder) -> Option<(Vec<f32>, Vec<u8>)> {
    if k == 0 || !k.is_multiple_of(4) || values.len() != n * k {
        return None;
    }
    let chunks = k.div_ceil(DEPTH);
    let mut elements = Vec::with_capacity(n * k / 2);
    let mut indices = vec![0x44; indices_bytes(n, k)];
    for (channel, row) in values.chunks(k).enumerate() {
        for (group, four) in row.chunks(4).enumerate() {
            let places = kept(four)?;
            elements.extend(places.map(|place| four[place]));
            let depth = 4 * group;
            let block = (channel / CHANNELS * chunks + depth / DEPTH) * BYTES;
            let at = order.place(channel % CHANNELS, depth % DEPTH);
            let byte = &mut indices[block + at / 2];
            let bits = (places[0] | places[1] << 2) as u8;
            *byte = match at % 2 {
                0 => *byte & 0xf0 | bits,
                _ => *byte & 0x0f | bits << 4,
            };
        }
    }
    Some((elements, indices))
}

impl SparseGemmArgs {
    /// Creates the arguments for `activation(x · weightᵀ + bias) + residual` with `x` `[m, k]`, a weight `[n, k]` from [`pack_sparse`], and
    /// `out` `[m, n]`. The weight's indices are at the next multiple of their blocks behind its elements. `bias` `[n]` and `residual`
    /// `[m, n]` may be null. `out` may alias `residual`.
    ///
    /// # Errors
    ///
    /// An extent exceeds 32 bits.
    pub(crate) fn new(
        [x, weight, bias, residual, out]: [DeviceAddress; 5],
        [m, n, k]: [usize; 3],
        activation: Option<Activation>,
    ) -> Result<Self, KernelError> {
        Ok(Self {
            x,
            values: weight,
            indices: weight.offset(sparse_indices_at(n, k)),
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

// SAFETY: see hip/sparse_gemm.hip. Elements beyond the last row, channel or inner element are neither read nor written.
unsafe impl KernelArguments for SparseGemmArgs {
    const FILE: &'static str = "sparse_gemm";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        if target.dtype.size() != 2 {
            let reason = format!("multiplies f16 and bf16, not {}", target.dtype);
            return Err(KernelError::Unsupported(reason));
        }
        if self.inner == 0 || !self.inner.is_multiple_of(4) || self.channels == 0 {
            let [n, k] = [self.channels, self.inner];
            let reason = format!("takes fours of input channels, not a weight [{n}, {k}]");
            return Err(KernelError::Unsupported(reason));
        }
        let tiles = |extent: u32| u64::from(extent.div_ceil(SPARSE_GEMM_TILE));
        target.blocks(tiles(self.rows) * tiles(self.channels), SPARSE_GEMM_THREADS)
    }

    fn accesses(&self, element: usize, visit: &mut dyn FnMut(Access)) {
        let [n, k] = [self.channels, self.inner];
        visit(Access::read("values", self.values, bytes(element, &[n, k / 2])));
        let indices = indices_bytes(n as usize, k as usize);
        visit(Access::read("indices", self.indices, indices));
        visit(Access::read("x", self.x, bytes(element, &[self.rows, k])));
        let epilogue = [self.bias, self.residual, self.out];
        visit_epilogue(epilogue, [element; 2], [self.rows, n], visit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns 16 channels of 64 elements, with each pair of positions.
    fn weight() -> Vec<f32> {
        const PAIRS: [[usize; 2]; 6] = [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]];
        let mut weight = vec![0.0; 16 * 64];
        for (group, four) in weight.chunks_mut(4).enumerate() {
            for place in PAIRS[(group * 5 + group / 16) % 6] {
                four[place] = (4 * group + place + 1) as f32;
            }
        }
        weight
    }

    /// The indices have the order of lanes in sparse_gemm.h.
    #[test]
    fn indices_are_in_the_order_of_lanes() {
        let weight = weight();
        for order in [SparseOrder::Smfmac, SparseOrder::MmaSp] {
            let (elements, indices) = pack_sparse(&weight, [16, 64], order).unwrap();
            assert_eq!((elements.len(), indices.len()), (16 * 32, BYTES));
            let lanes: Vec<(u32, Vec<(usize, usize)>)> = match order {
                SparseOrder::Smfmac => (indices.as_chunks::<2>().0.iter().enumerate())
                    .map(|(lane, &bits)| {
                        let fours = [0, 4, 32, 36].map(|d| (lane % 16, 8 * (lane / 16) + d));
                        (u16::from_le_bytes(bits).into(), fours.to_vec())
                    })
                    .collect(),
                SparseOrder::MmaSp => (indices.as_chunks::<4>().0.iter().enumerate())
                    .map(|(lane, &bits)| {
                        let of = |c| [0, 4, 8, 12].map(|d| (c, 16 * (lane % 4) + d));
                        (
                            u32::from_le_bytes(bits),
                            [of(lane / 4), of(lane / 4 + 8)].concat(),
                        )
                    })
                    .collect(),
            };
            for (bits, fours) in lanes {
                for (index, (channel, depth)) in fours.into_iter().enumerate() {
                    let four = bits >> (4 * index) & 0xf;
                    let first = (channel * 64 + depth) / 2;
                    for (i, place) in [four & 3, four >> 2].into_iter().enumerate() {
                        let at = channel * 64 + depth + place as usize;
                        assert_eq!(elements[first + i], weight[at], "{order:?}: {channel}, {depth}");
                        assert_ne!(weight[at], 0.0);
                    }
                }
            }
        }
    }

    #[test]
    fn two_of_four_are_kept_in_order() {
        let kept = |four: [f32; 4]| super::kept(&four);
        assert_eq!(kept([0.0, 1.0, 0.0, -2.0]), Some([1, 3]));
        assert_eq!(kept([0.0, -0.0, 0.0, 0.0]), Some([0, 1]));
        assert_eq!(kept([5.0, 0.0, 0.0, 0.0]), Some([0, 1]));
        assert_eq!(kept([0.0, 0.0, f32::NAN, 0.0]), Some([0, 2]));
        assert_eq!(kept([0.0, 1.0, 1.0, 1.0]), None);
        assert!(pack_sparse(&[0.0; 6], [1, 6], SparseOrder::Smfmac).is_none());
        // 9/16. Channels and inner elements beyond the last ones are stored as 0 and 1 of four.
        assert_eq!(sparse_bytes(768, 3072), 768 * 3072 * 2 * 9 / 16);
        let (elements, indices) = pack_sparse(&[0.0; 17 * 68], [17, 68], SparseOrder::MmaSp).unwrap();
        assert_eq!((elements.len(), indices.len()), (17 * 34, 4 * BYTES));
        assert!(indices.iter().all(|&byte| byte == 0x44));
    }

    #[test]
    fn architectures_have_their_order() {
        for (arch, order) in [
            ("gfx942", Some(SparseOrder::Smfmac)),
            ("gfx950", Some(SparseOrder::Smfmac)),
            ("gfx90a", None),
            ("gfx1100", None),
            ("sm_75", None),
            ("sm_80", Some(SparseOrder::MmaSp)),
            ("sm_90", Some(SparseOrder::MmaSp)),
            ("sm_120a", Some(SparseOrder::MmaSp)),
        ] {
            assert_eq!(SparseOrder::of(arch), order, "{arch}");
        }
    }
}
