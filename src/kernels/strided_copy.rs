//! `strided_copy`: copies of strided views, such as permutations, slices with a step, and repetitions.

use hipvit_graph::strided::View;

use super::bindings::{STRIDED_AXES, STRIDED_THREADS, STRIDED_TILE, StridedCopyArgs, VEC128_BYTES};
use super::call::CopyRows;
use super::lower::{Call, Lowering};
use super::{Access, DeviceAddress, KernelArguments, KernelError, Launch, Target, extent};
use std::borrow::Cow;

/// Number of axes of the kernel's views.
const AXES: usize = STRIDED_AXES as usize;
/// Index of the last axis.
const LAST: usize = AXES - 1;
/// Minimum extents of both axes of a view that is copied by tiles. Smaller ones leave most threads of a tile idle.
const SMALLEST_TILE: u32 = 8;

impl StridedCopyArgs {
    /// Creates the arguments for a view of `x`, a tensor of `elements` elements of `element` bytes.
    ///
    /// # Errors
    ///
    /// The view has more axes than the kernel after merging, or elements outside of `x`, or an extent exceeds 32 bits.
    pub fn new(
        [x, out]: [DeviceAddress; 2],
        view: &View,
        elements: usize,
        element: usize,
    ) -> Result<Self, KernelError> {
        let view = view.merged();
        let Some(missing) = AXES.checked_sub(view.extents.len()) else {
            let reason = format!(
                "moves {} axes apart, the kernel at most {AXES}",
                view.extents.len()
            );
            return Err(KernelError::Unsupported(reason));
        };
        check_range(&view, elements)?;
        let (mut extents, mut strides) = ([1; AXES], [0; AXES]);
        for (axis, (&length, &stride)) in view.extents.iter().zip(&view.strides).enumerate() {
            extents[missing + axis] = extent(length)?;
            strides[missing + axis] = stride as i64;
        }
        let mut this = Self {
            x,
            out,
            strides,
            offset: view.offset as u64,
            elements: elements as u64,
            extents,
            element: extent(element)?,
            width: 1,
            tile_axis: STRIDED_AXES,
            reserved: 0,
        };
        this.divide();
        Ok(this)
    }

    /// Chooses the entry, and the elements per thread.
    fn divide(&mut self) {
        let stride = self.strides[LAST];
        let is_long = |axis: usize| self.extents[axis] >= SMALLEST_TILE;
        let tile = (0..LAST)
            .rev()
            .find(|&axis| self.strides[axis] == 1 && is_long(axis));
        match tile {
            Some(axis) if ![0, 1].contains(&stride) && is_long(LAST) => self.tile_axis = axis as u32,
            _ if stride == 1 && self.is_vectorized() => self.width = VEC128_BYTES / self.element,
            // 8 bytes, which the kernel does not take for a vector.
            _ if stride == 0 || stride == 1 => self.width = VEC128_BYTES / 2 / self.element,
            _ => {}
        }
    }

    /// Returns true if all rows are whole vectors that start at multiples of vectors.
    fn is_vectorized(&self) -> bool {
        let vec = VEC128_BYTES / self.element;
        let mut axes = (0..LAST).filter(|&axis| self.extents[axis] > 1);
        self.extents[LAST].is_multiple_of(vec)
            && self.offset.is_multiple_of(vec.into())
            && axes.all(|axis| self.strides[axis] % i64::from(vec) == 0)
    }
}

/// Checks that a view has elements, all within a tensor of `elements` elements.
fn check_range(view: &View, elements: usize) -> Result<(), KernelError> {
    if view.is_empty() {
        return Err("copies no elements".into());
    }
    let (mut first, mut last) = (view.offset as i128, view.offset as i128);
    for (&extent, &stride) in view.extents.iter().zip(&view.strides) {
        let reach = (extent as i128 - 1) * stride as i128;
        first += reach.min(0);
        last += reach.max(0);
    }
    if first < 0 || last >= elements as i128 {
        return Err(KernelError::internal("views elements outside of the tensor"));
    }
    Ok(())
}

// SAFETY: see hip/strided_copy.hip. Threads beyond the last row, and blocks beyond the last tile, return. The view is within x, which
// `check_range` checks.
unsafe impl KernelArguments for StridedCopyArgs {
    const FILE: &'static str = "strided_copy";

    fn entry(&self) -> Result<Cow<'static, str>, KernelError> {
        let is_tiled = self.tile_axis < STRIDED_AXES;
        Ok(if is_tiled {
            "strided_copy_tiled"
        } else {
            "strided_copy"
        }
        .into())
    }

    fn plan(&mut self, target: &Target) -> Result<Launch, KernelError> {
        let outer = |axes: &mut dyn Iterator<Item = usize>| {
            axes.map(|axis| u64::from(self.extents[axis]))
                .fold(1, u64::saturating_mul)
        };
        let length = self.extents[LAST];
        if self.tile_axis < STRIDED_AXES {
            let tile_axis = self.tile_axis as usize;
            let tiles = [self.extents[tile_axis], length].map(|n| u64::from(n.div_ceil(STRIDED_TILE)));
            let blocks = outer(&mut (0..LAST).filter(|&axis| axis != tile_axis));
            let blocks = tiles.into_iter().fold(blocks, u64::saturating_mul);
            return target.blocks(blocks, STRIDED_THREADS);
        }
        let per_row = u64::from(length.div_ceil(self.width));
        target.threads(outer(&mut (0..LAST)).saturating_mul(per_row), STRIDED_THREADS)
    }

    fn accesses(&self, _element: usize, visit: &mut dyn FnMut(Access)) {
        let element = self.element as usize;
        let x = usize::try_from(self.elements).unwrap_or(usize::MAX);
        visit(Access::read("x", self.x, x.saturating_mul(element)));
        visit(Access::write(
            "out",
            self.out,
            super::bytes(element, &self.extents),
        ));
    }
}

impl Lowering<'_> {
    /// Returns the copy of a view of operand 0 to the result.
    pub(super) fn copy_view(&self, view: &View) -> Result<Vec<Call>, KernelError> {
        let elements = self.shape_of(0)?.iter().product();
        Ok(vec![self.copied_view(
            view,
            elements,
            [self.address(0)?, self.out],
        )?])
    }

    /// Returns the copy of a view of a tensor of `elements` elements, which have the dtype of the result.
    pub(super) fn copied_view(
        &self,
        view: &View,
        elements: usize,
        [x, out]: [DeviceAddress; 2],
    ) -> Result<Call, KernelError> {
        let element = self.moved_element();
        let merged = view.merged();
        if matches!(*merged.strides, [] | [1]) && !merged.is_empty() {
            check_range(&merged, elements)?;
            let bytes = merged.len() * element;
            return Ok(Call::CopyRows(CopyRows {
                from: x.offset(merged.offset * element),
                from_stride: bytes,
                to: out,
                to_stride: bytes,
                bytes,
                rows: 1,
            }));
        }
        Ok(StridedCopyArgs::new([x, out], view, elements, element)?.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;

    const NULL: DeviceAddress = DeviceAddress::NULL;

    fn copy(view: &View, elements: usize, element: usize) -> (Cow<'static, str>, u32, u32) {
        let mut arguments = StridedCopyArgs::new([NULL; 2], view, elements, element).unwrap();
        let target = Target {
            dtype: DType::F16,
            wave_size: 64,
            max_blocks: i32::MAX as u32,
            tile: 0,
        };
        let launch = arguments.plan(&target).unwrap();
        (arguments.entry().unwrap(), arguments.width, launch.grid[0])
    }

    #[test]
    fn each_view_has_the_entry_that_reads_and_writes_lines() {
        let images = View::of(&[2, 64, 96, 40]);
        let elements = images.len();
        // Channels last to first: 2 images of 192 × 2 tiles.
        let first = images.permuted(&[0, 3, 1, 2]);
        let tiles = ("strided_copy_tiled".into(), 1, 2 * 192 * 2);
        assert_eq!(copy(&first, elements, 2), tiles);
        // Rows of 40 elements: 5 vectors of 16 bits, or 10 of 32.
        let rows = images.permuted(&[0, 2, 1, 3]);
        let threads = |per_row: u32| (2 * 64 * 96 * per_row).div_ceil(STRIDED_THREADS);
        assert_eq!(copy(&rows, elements, 2), ("strided_copy".into(), 8, threads(5)));
        assert_eq!(copy(&rows, elements, 4), ("strided_copy".into(), 4, threads(10)));
        // Rows that start between vectors, every other element, and repetitions.
        let shifted = images.clone().sliced(3, 1, 8, 1);
        assert_eq!(
            copy(&shifted, elements, 2),
            ("strided_copy".into(), 4, threads(2))
        );
        let every_other = images.clone().sliced(3, 0, 20, 2);
        assert_eq!(
            copy(&every_other, elements, 2),
            ("strided_copy".into(), 1, threads(20))
        );
        let repeated = View::of(&[64, 1]).expanded(&[64, 8]);
        assert_eq!(copy(&repeated, 64, 4), ("strided_copy".into(), 2, 1));
    }

    #[test]
    fn views_outside_of_the_tensor_are_refused() {
        let view = View::of(&[4, 5]).sliced(0, 3, 4, -1);
        assert!(StridedCopyArgs::new([NULL; 2], &view, 20, 4).is_ok());
        assert!(StridedCopyArgs::new([NULL; 2], &view, 19, 4).is_err());
        let below = View::of(&[4, 5]).sliced(0, 2, 4, -1);
        assert!(StridedCopyArgs::new([NULL; 2], &below, 20, 4).is_err());
        let many: Vec<usize> = (0..8).rev().collect();
        let apart = View::of(&[2; 8]).permuted(&many);
        let error = StridedCopyArgs::new([NULL; 2], &apart, 256, 4).unwrap_err();
        assert!(error.to_string().contains("moves 8 axes apart"), "{error}");
    }
}
