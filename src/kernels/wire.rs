//! `wire`: pieces of tensors on the way between ranks.

use super::bindings::{WIRE_PART, WIRE_PIECES, WIRE_THREADS, WireArgs, WirePiece};
use super::{Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, bytes, extent};

/// Number of parts of a piece.
fn parts(elements: u32) -> u32 {
    elements.div_ceil(WIRE_PART)
}

impl WireArgs {
    /// Creates the arguments of launches that copy elements, each piece with its source, its target, and its number of elements.
    /// `sizes` are the bytes of an element of sources and targets.
    pub(super) fn launches(
        pieces: &[([DeviceAddress; 2], usize)],
        sizes: [usize; 2],
    ) -> Result<Vec<Self>, KernelError> {
        let [from_bytes, to_bytes] = sizes.map(|size| size as u32);
        let mut launches = Vec::new();
        for pieces in pieces.chunks(WIRE_PIECES as usize) {
            let unused = WirePiece {
                x: DeviceAddress::NULL,
                out: DeviceAddress::NULL,
                elements: 0,
                first_part: 0,
            };
            let mut arguments = Self {
                pieces: [unused; WIRE_PIECES as usize],
                count: extent(pieces.len())?,
                from_bytes,
                to_bytes,
                reserved: 0,
            };
            let mut first_part = 0;
            for (piece, &([x, out], elements)) in arguments.pieces.iter_mut().zip(pieces) {
                let elements = extent(elements)?;
                *piece = WirePiece {
                    x,
                    out,
                    elements,
                    first_part,
                };
                first_part += parts(elements);
            }
            launches.push(arguments);
        }
        Ok(launches)
    }

    fn used(&self) -> &[WirePiece] {
        &self.pieces[..self.count as usize]
    }
}

// SAFETY: see hip/wire.hip. A block takes a part, and exactly as many blocks are launched.
unsafe impl KernelArguments for WireArgs {
    const FILE: &'static str = "wire";

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        let last = self.used().last();
        let blocks = last.map_or(0, |last| last.first_part + parts(last.elements));
        target.blocks(blocks.into(), WIRE_THREADS)
    }

    fn accesses(&self, _element: usize, visit: &mut dyn FnMut(Access)) {
        for piece in self.used() {
            let [x, out] =
                [self.from_bytes, self.to_bytes].map(|size| bytes(size as usize, &[piece.elements]));
            visit(Access::read("x", piece.x, x));
            visit(Access::write("out", piece.out, out));
        }
    }
}
