//! `wire`: pieces of several tensors, compared bit for bit.

use super::{Gpu, Part, random};
use crate::hip::DeviceAddress;
use crate::kernels::WireArgs;
use crate::tensor::DType;

/// Elements of the pieces, around vectors and the parts that blocks take.
const PIECES: [usize; 13] = [1, 63, 64, 65, 197, 257, 3, 8191, 8192, 8193, 5, 20_001, 2];
/// Elements between two pieces, which must not be written.
const GAP: usize = 3;

#[test]
fn pieces_are_copied_or_rounded() {
    let Some(gpu) = Gpu::get() else { return };
    for [from, to] in [
        [DType::F32, DType::F32],
        [DType::F16, DType::F16],
        [DType::F32, DType::BF16],
        [DType::BF16, DType::F32],
    ] {
        for shift in [0, 1] {
            let total: usize = PIECES.iter().map(|elements| elements + GAP).sum();
            let mut values = random(total, shift, 4.0);
            (values[1], values[2], values[5]) = (f32::NEG_INFINITY, 3.0e-39, -0.0);
            let source = Part::numbers(&values, from);
            let parts = [source.clone(), Part::result(total, to.size())];
            let results = gpu.run(DType::F32, &parts, shift, |[x, out]| {
                let mut pieces = Vec::new();
                let mut at = 0;
                for elements in PIECES {
                    let place = |start: DeviceAddress, dtype: DType| start.offset(at * dtype.size());
                    pieces.push(([place(x, from), place(out, to)], elements));
                    at += elements + GAP;
                }
                let mut launches = WireArgs::launches(&pieces, [from, to].map(DType::size))?;
                assert_eq!(launches.len(), 1);
                Ok(launches.remove(0).into())
            });
            // Rounded once for each step of the way.
            let expected = Part::numbers(&super::numbers(&source.bytes, from), to).bytes;
            let mut at = 0;
            for elements in PIECES {
                let piece = at * to.size()..(at + elements) * to.size();
                assert_eq!(
                    results[0][piece.clone()],
                    expected[piece],
                    "{elements} elements at {at}, {from} to {to}, shifted by {shift}"
                );
                let gap = (at + elements) * to.size()..(at + elements + GAP) * to.size();
                assert!(results[0][gap].iter().all(|&byte| byte == Gpu::FILL));
                at += elements + GAP;
            }
        }
    }
}
