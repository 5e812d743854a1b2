//! Patch extraction in both layouts, normalised or not.

use super::super::expected::Part;
use super::{AWKWARD, List, NORMALIZE, Scale, image, image_size};
use hipvit::ops::{Op, PatchExtract, PixelLayout};
use hipvit::reference::Array;
use hipvit::tensor::{DType, Tensor};

pub(super) fn cases(list: &mut List) {
    match list.scale() {
        Scale::Model { sizes, .. } => {
            add(list, sizes.batch, sizes.tokens, [16, 16], 0);
            if list.is_micro() {
                // Patches of an odd width, and pixels beyond the last patch in both directions.
                add(list, 1, 12, [14, 7], 3);
            }
        }
        Scale::Awkward => {
            for a in &AWKWARD {
                add(list, a.batch, a.tokens, a.patch, 1);
            }
        }
        Scale::Heads => {}
    }
}

fn add(list: &mut List, batch: usize, tokens: usize, patch: [usize; 2], rest: usize) {
    let [h, w] = image_size(tokens, patch, rest);
    let pixels = || image(&[batch, h, w, 3], DType::U8);
    let values = || image(&[batch, 3, h, w], DType::F32);
    for normalize in [Some(NORMALIZE), None] {
        for (layout, x) in [(PixelLayout::Hwc, pixels()), (PixelLayout::Chw, values())] {
            let spec = PatchExtract {
                patch,
                layout,
                normalize,
            };
            list.push(Op::PatchExtract(spec), vec![x]);
        }
    }
}

/// Returns the patches of these rows, stacked in one image.
pub(in crate::validate) fn patch_part(
    op: &Op,
    [h, w]: [usize; 2],
    layout: PixelLayout,
    operands: &[Tensor],
    rows: &[usize],
    dtype: DType,
) -> Result<Vec<Part>, String> {
    let image = operands.first().ok_or("takes an image")?;
    let (height, width) = match (layout, image.shape()) {
        (PixelLayout::Hwc, &[_, height, width, _]) | (PixelLayout::Chw, &[_, _, height, width]) => {
            (height, width)
        }
        (_, shape) => return Err(format!("takes images, not {shape:?}")),
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
