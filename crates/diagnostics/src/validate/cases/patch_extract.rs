//! Patch extraction in both layouts, normalised or not.

use crate::validate::part::Part;
use hipvit::ops::{Op, OpError, PixelLayout};
use hipvit::reference::Array;
use hipvit::tensor::{DType, Tensor};

/// Returns the patches of these rows, stacked in an image.
pub(in crate::validate) fn patch_part(
    op: &Op,
    [h, w]: [usize; 2],
    layout: PixelLayout,
    operands: &[Tensor],
    rows: &[usize],
    dtype: DType,
) -> Result<Vec<Part>, OpError> {
    let image = operands.first().ok_or("takes an image")?;
    let (height, width) = match (layout, image.shape()) {
        (PixelLayout::Hwc, &[_, height, width, _]) | (PixelLayout::Chw, &[_, _, height, width]) => {
            (height, width)
        }
        (_, shape) => return Err(format!("takes images, not {shape:?}").into()),
    };
    let across = width / w;
    let per_image = height / h * across;
    let pixels = image.to_f32();
    let pixel = |row: usize, c: usize, i: usize, j: usize| {
        let (image, patch) = (row / per_image, row % per_image);
        let (y, x) = (patch / across * h + i, patch % across * w + j);
        f64::from(match layout {
            PixelLayout::Hwc => pixels[((image * height + y) * width + x) * 3 + c],
            PixelLayout::Chw => pixels[((image * 3 + c) * height + y) * width + x],
        })
    };
    let tall = rows.len() * h;
    let (shape, values): (_, Vec<f64>) = match layout {
        PixelLayout::Hwc => {
            let at = |e: usize| pixel(rows[e / 3 / w / h], e % 3, e / 3 / w % h, e / 3 % w);
            ([1, tall, w, 3], (0..tall * w * 3).map(at).collect())
        }
        PixelLayout::Chw => {
            let at = |e: usize| pixel(rows[e / w % tall / h], e / w / tall, e / w % tall % h, e % w);
            ([1, 3, tall, w], (0..tall * w * 3).map(at).collect())
        }
    };
    let mut arrays = vec![Array::new(shape, values).ok_or("an operand of another size")?];
    arrays.extend(operands[1..].iter().map(Array::from));
    Ok(vec![Part::eval(op, &arrays, rows, dtype)?])
}
