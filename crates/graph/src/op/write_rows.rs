//! Rows that are replaced, as in a cache of keys and values.

use super::operands::{count, exactly, one};
use super::{Definition, Locality, OpError, Shape};
use crate::array::{Array, Real};
use crate::cases::{Cases, activation, integers};
use crate::dtype::DType;

/// `(x [S, C], rows [B, …, C], slots [B] i32) → x with rows`: the `N` rows of each image, whose number divides `S`, replace rows `slot · N` to
/// `slot · N + N` of x. A slot beyond an end writes nothing. Slots of images must differ. With one row per image, rows may be wider than x:
/// `[B, W]`, whose last `C` columns are written, such as the keys and values of packed queries, keys and values.
///
/// If x is a state that the result updates, executors write to the state itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteRows;

/// Returns the place of a slot among `places`. `None` for a slot beyond an end.
pub fn place<T: Real>(slot: T, places: usize) -> Option<usize> {
    let slot = slot.to_f64();
    (slot >= 0.0 && slot < places as f64).then_some(slot as usize)
}

/// Returns the elements of an image in `rows`, and the last of them that are written to a matrix of `channels` columns.
pub fn extents(rows: &[usize], channels: usize) -> (usize, usize) {
    let stride: usize = rows[1..].iter().product();
    let width = rows[rows.len() - 1];
    (stride, stride / width.max(1) * channels)
}

impl Definition for WriteRows {
    const NAME: &'static str = "write_rows";

    fn shapes(&self, operands: &[&[usize]]) -> Result<Vec<Shape>, OpError> {
        let [x, rows, slots] = exactly(operands)?;
        let (&[all, channels], [images, inner @ .., last]) = (x, rows) else {
            return Err(format!("cannot write rows {rows:?} to {x:?}, which is not [S, C]").into());
        };
        let each: usize = inner.iter().product();
        let fits = *last == channels || inner.is_empty() && *last > channels;
        if !fits || slots != [*images] {
            let reason = format!(
                "rows {rows:?} and slots {slots:?} do not fit {x:?}: expected [B, …, {channels}] and [B]"
            );
            return Err(reason.into());
        }
        if each == 0 || !all.is_multiple_of(each) {
            return Err(format!(
                "{each} rows of an image do not divide the {all} rows that they are written to"
            )
            .into());
        }
        one(x)
    }

    fn operand_dtype(&self, index: usize, dtype: DType) -> DType {
        match index {
            2 => DType::I32,
            _ => dtype,
        }
    }

    fn flops(&self, _operands: &[&[usize]], _results: &[Shape]) -> u64 {
        0
    }

    fn elements_read(&self, index: usize, operands: &[&[usize]], _results: &[Shape]) -> usize {
        match index {
            0 => 0,
            _ => count(operands[index]) as usize,
        }
    }

    fn replaces_rows(&self) -> bool {
        true
    }

    fn locality(&self, _index: usize) -> Locality {
        Locality::Whole
    }

    fn compute<T: Real>(&self, operands: &[&Array<T>], results: &mut [Array<T>]) {
        let result = results[0].values_mut();
        result.copy_from_slice(operands[0].values());
        let slots = operands[2].values();
        let images = operands[1].values();
        let (stride, each) = extents(operands[1].shape(), operands[0].shape()[1]);
        for (image, &slot) in images.chunks_exact(stride).zip(slots) {
            if let Some(place) = place(slot, result.len() / each) {
                result[place * each..][..each].copy_from_slice(&image[stride - each..]);
            }
        }
    }

    fn cases(cases: &mut Cases<Self>) {
        cases.for_each_shape(|cases, [batch, tokens, channels], _| {
            // Slots of cases ascend, and may repeat if there are several.
            let x = activation(&[3 * tokens, channels]);
            let rows = activation(&[1, tokens, channels]);
            cases.push(Self, vec![x, rows, integers(&[1], 3)]);
            if batch == 1 || cases.is_micro() {
                let x = activation(&[5, channels]);
                cases.push(Self, vec![x, activation(&[1, channels]), integers(&[1], 9)]);
                let x = activation(&[5, channels]);
                let packed = activation(&[1, 3 * channels + 1]);
                cases.push(Self, vec![x, packed, integers(&[1], 6)]);
            }
        });
    }

    fn tolerance(&self, _index: usize, _operands: &[&Array], _dtype: DType) -> f64 {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_take_whole_images() {
        let x = Array::new([4, 2], (0..8).map(f64::from).collect()).unwrap();
        let rows = Array::new([3, 2, 2], (10..22).map(f64::from).collect()).unwrap();
        let slots = Array::new([3], vec![1.0, -1.0, 2.0]).unwrap();
        let y = WriteRows.eval(&[&x, &rows, &slots]).unwrap();
        assert_eq!(y[0].values(), [0.0, 1.0, 2.0, 3.0, 10.0, 11.0, 12.0, 13.0]);
        let single = Array::new([1, 2], vec![-5.0, -6.0]).unwrap();
        let slots = Array::new([1], vec![3.0]).unwrap();
        let y = WriteRows.eval(&[&x, &single, &slots]).unwrap();
        assert_eq!(y[0].values(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, -5.0, -6.0]);
        let three = Array::new([1, 3, 2], vec![0.0; 6]).unwrap();
        assert!(WriteRows.eval(&[&x, &three, &slots]).is_err());
        let packed = Array::new([1, 3], vec![1.0, -5.0, -6.0]).unwrap();
        let from_packed = WriteRows.eval(&[&x, &packed, &slots]).unwrap();
        assert_eq!(from_packed[0], y[0]);
        let narrow = Array::new([1, 1], vec![1.0]).unwrap();
        assert!(WriteRows.eval(&[&x, &narrow, &slots]).is_err());
    }
}
