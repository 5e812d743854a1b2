//! What the oracle says: of the whole result where that is quickly computed, else of some of its rows, each computed
//! from the operands' rows that it depends on alone.

use std::collections::BTreeMap;

use super::cases::{Case, KernelForm, Mask, Work};
use super::operands::random;
use crate::error::{Error, Result};
use crate::ops::{Attention, AttentionOperands, Op, PatchConv, PatchExtract, PixelLayout};
use crate::reference::{self, Array, op_tolerance};
use crate::tensor::{DType, Tensor};

/// What the oracle may spend on a case, in floating-point operations: about a second on one core.
const WORK: u64 = 1 << 29;
/// What an element costs that is only converted and compared, in these.
const ELEMENT: u64 = 16;
/// The most elements of operands and result that are looked at, parameters aside, where rows are sampled.
pub(super) const MOST_ELEMENTS: usize = (WORK / ELEMENT) as usize * 2;
/// The fewest rows that stand for all.
const FEWEST: usize = 16;

/// The oracle's values of some rows of a result.
#[derive(Debug)]
pub(super) struct Expected {
    /// The rows' indices, ascending; a row is what lies along the last extent.
    pub(super) rows: Vec<usize>,
    /// One row after the other.
    pub(super) values: Vec<f64>,
    pub(super) tolerance: f64,
}

/// The rows to check of a result of this shape.
pub(super) fn sample(case: &Case, shape: &[usize]) -> Vec<usize> {
    let channels = shape.last().copied().unwrap_or(1).max(1);
    let rows = shape.iter().product::<usize>() / channels;
    let operands = case.operands.iter().map(|o| o.shape.iter().product::<usize>());
    let elements = (rows * channels + operands.sum::<usize>()) as u64;
    let whole = case.flops(shape).max(ELEMENT * elements);
    if whole <= WORK || rows <= FEWEST {
        return (0..rows).collect();
    }
    let count = (rows as f64 * WORK as f64 / whole as f64) as usize;
    let mut sampled: Vec<usize> = (0..count.clamp(FEWEST, rows))
        .map(|i| match i {
            0 => 0,
            1 => rows - 1,
            _ => (random(rows, i) % rows as u64) as usize,
        })
        .collect();
    if let Work::Op(Op::Normalize(_) | Op::Prepend | Op::Tokens(_)) = case.work {
        // Whole images are computed: only the first and the last.
        let image = rows / shape[0];
        sampled.retain(|row| *row < image || *row >= rows - image);
    }
    sampled.sort_unstable();
    sampled.dedup();
    sampled
}

/// The oracle's values of these rows of the result.
///
/// # Errors
///
/// [`Error::Graph`] if the op does not take the operands.
pub(super) fn expect(case: &Case, operands: &[Tensor], rows: Vec<usize>, dtype: DType) -> Result<Expected> {
    let failed = |reason: String| Error::graph(case.op_name(), reason);
    let mut expected = Expected {
        rows: Vec::new(),
        values: Vec::new(),
        tolerance: 0.0,
    };
    let parts = match &case.work {
        Work::Op(op) => parts(op, operands, &rows),
        Work::Kernel(KernelForm::MaskedAttention(spec, mask)) => {
            attention_parts(spec, Some(*mask), operands, &rows)
        }
        Work::Kernel(KernelForm::LayerNormOfSum { epsilon }) => layer_norm_of_sum(*epsilon, operands, &rows),
    };
    for part in parts.map_err(failed)? {
        let arrays: Vec<&Array> = part.operands.iter().collect();
        let result = match (&part.op, &part.mask) {
            (Op::Attention(spec), Some(mask)) => {
                reference::masked_attention(spec, &arrays, |_, query, key| {
                    mask.sees(part.queries[query], key)
                })
            }
            (op, _) => reference::eval(op, &arrays),
        };
        let result = result.map_err(failed)?;
        let tolerance = op_tolerance(&part.op, &arrays, dtype);
        expected.tolerance = expected.tolerance.max(tolerance);
        let channels = result.shape().last().copied().unwrap_or(1);
        for (row, from) in part.rows {
            expected.rows.push(row);
            let values = result.values().get(from * channels..(from + 1) * channels);
            expected
                .values
                .extend_from_slice(values.ok_or_else(|| failed(format!("has no row {row}")))?);
        }
    }
    Ok(expected)
}

/// A smaller problem whose result has some of the rows.
struct Part {
    op: Op,
    operands: Vec<Array>,
    /// A row of the whole result, and which row of the part's it is.
    rows: Vec<(usize, usize)>,
    /// Attention alone: what is visible, and the query that each of the part's is.
    mask: Option<Visible>,
    queries: Vec<usize>,
}

impl Part {
    fn new(op: Op, operands: Vec<Array>, rows: &[usize]) -> Self {
        Self {
            op,
            operands,
            rows: rows.iter().copied().zip(0..).collect(),
            mask: None,
            queries: Vec::new(),
        }
    }
}

/// A mask over one image's keys.
struct Visible {
    mask: Mask,
    queries: usize,
    keys: usize,
    padding: Option<Vec<f64>>,
}

impl Visible {
    fn sees(&self, query: usize, key: usize) -> bool {
        let present = self.padding.as_ref().is_none_or(|keys| keys[key] != 0.0);
        present && self.mask.keys(query, self.queries, self.keys).contains(&key)
    }
}

fn parts(op: &Op, operands: &[Tensor], rows: &[usize]) -> Result<Vec<Part>, String> {
    match op {
        Op::Attention(spec) => attention_parts(spec, None, operands, rows),
        Op::PatchConv(PatchConv { patch, .. }) => patch_part(op, *patch, PixelLayout::Chw, operands, rows),
        Op::PatchExtract(PatchExtract { patch, layout, .. }) => {
            patch_part(op, *patch, *layout, operands, rows)
        }
        Op::Normalize(_) | Op::Prepend | Op::Tokens(_) | Op::Pool(_) | Op::ConcatChannels => {
            image_parts(op, operands, rows)
        }
        Op::Add
        | Op::Scale
        | Op::MulScalar(_)
        | Op::LayerNorm { .. }
        | Op::Linear(_)
        | Op::Activation(_)
        | Op::SwiGlu => row_part(op, operands, rows),
    }
}

/// Where row i of the result depends on row i of the activations, which have as many, and on all of the parameters.
fn row_part(op: &Op, operands: &[Tensor], rows: &[usize]) -> Result<Vec<Part>, String> {
    let parameters = match op {
        Op::Scale => 1..2,
        Op::LayerNorm { .. } => 1..3,
        Op::Linear(spec) => 1..2 + usize::from(spec.bias),
        _ => 0..0,
    };
    let operand = |(index, tensor): (usize, &Tensor)| match parameters.contains(&index) {
        true => Ok(Array::from(tensor)),
        false => gather(tensor, rows),
    };
    let operands = operands
        .iter()
        .enumerate()
        .map(operand)
        .collect::<Result<_, _>>()?;
    Ok(vec![Part::new(op.clone(), operands, rows)])
}

/// The norm of the sums, and the sums, as the result has them one after the other.
fn layer_norm_of_sum(epsilon: f32, operands: &[Tensor], rows: &[usize]) -> Result<Vec<Part>, String> {
    let [x, residual, weight, bias] = operands else {
        return Err("takes four operands".into());
    };
    let count = x.shape()[0];
    let (norms, sums): (Vec<usize>, Vec<usize>) = rows.iter().partition(|&&row| row < count);
    let sum = |rows: &[usize]| -> Result<Vec<Array>, String> {
        let rows: Vec<usize> = rows.iter().map(|row| row % count).collect();
        Ok(vec![gather(x, &rows)?, gather(residual, &rows)?])
    };
    let of_norms = sum(&norms)?;
    let normed = reference::eval(&Op::Add, &of_norms.iter().collect::<Vec<_>>())?;
    let norm = Op::LayerNorm { epsilon };
    Ok(vec![
        Part::new(norm, vec![normed, weight.into(), bias.into()], &norms),
        Part::new(Op::Add, sum(&sums)?, &sums),
    ])
}

/// These rows of a tensor, which start over at its end: `[rows, channels]`.
fn gather(tensor: &Tensor, rows: &[usize]) -> Result<Array, String> {
    let channels = tensor.shape().last().copied().unwrap_or(1).max(1);
    let values = tensor.to_f32();
    let count = (values.len() / channels).max(1);
    let row = |row: &usize| values[row % count * channels..][..channels].iter();
    let gathered = rows.iter().flat_map(row).map(|&v| f64::from(v)).collect();
    Array::new([rows.len(), channels], gathered).ok_or_else(|| "an operand of another size".into())
}

/// The rows by the image that they are of, with their places in it.
fn by_image(rows: &[usize], per_image: usize) -> BTreeMap<usize, Vec<(usize, usize)>> {
    let mut images: BTreeMap<usize, Vec<(usize, usize)>> = BTreeMap::new();
    for &row in rows {
        let image = images.entry(row / per_image).or_default();
        image.push((row, row % per_image));
    }
    images
}

/// One image after the other, all of it. Operands of another outermost extent are the same for all.
fn image_parts(op: &Op, operands: &[Tensor], rows: &[usize]) -> Result<Vec<Part>, String> {
    let shapes: Vec<&[usize]> = operands.iter().map(Tensor::shape).collect();
    let result = crate::ops::output_shape(op, &shapes)?;
    let per_image = result[1..result.len() - 1].iter().product();
    by_image(rows, per_image)
        .into_iter()
        .map(|(image, rows)| {
            let operand = |tensor: &Tensor| match tensor.shape()[0] == result[0] {
                true => image_of(tensor, image),
                false => Ok(Array::from(tensor)),
            };
            Ok(Part {
                rows,
                ..Part::new(
                    op.clone(),
                    operands.iter().map(operand).collect::<Result<_, String>>()?,
                    &[],
                )
            })
        })
        .collect()
}

/// `[1, …]`; of the one image if there is one for all.
fn image_of(tensor: &Tensor, image: usize) -> Result<Array, String> {
    let mut shape = tensor.shape().to_vec();
    let image = if shape[0] == 1 { 0 } else { image };
    shape[0] = 1;
    let len: usize = shape.iter().product();
    let values = tensor.to_f32();
    let values = values[image * len..(image + 1) * len].iter();
    Array::new(shape, values.map(|&v| f64::from(v)).collect())
        .ok_or_else(|| "an operand of another size".into())
}

/// The patches that are wanted, one below the other in an image of their own.
fn patch_part(
    op: &Op,
    [h, w]: [usize; 2],
    layout: PixelLayout,
    operands: &[Tensor],
    rows: &[usize],
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
    Ok(vec![Part::new(op.clone(), arrays, rows)])
}

/// The wanted queries of each image, with all of its keys and values, unpacked.
fn attention_parts(
    spec: &Attention,
    mask: Option<Mask>,
    operands: &[Tensor],
    rows: &[usize],
) -> Result<Vec<Part>, String> {
    let c = spec.heads * spec.head_dim;
    let at = |index: usize| operands.get(index).ok_or("an operand is missing");
    let [q, k, v] = match spec.operands {
        AttentionOperands::Separate => [(at(0)?, 0), (at(1)?, 0), (at(2)?, 0)],
        AttentionOperands::PackedQkv => [(at(0)?, 0), (at(0)?, c), (at(0)?, 2 * c)],
        AttentionOperands::PackedKv => [(at(0)?, 0), (at(1)?, 0), (at(1)?, c)],
    };
    let queries = match q.0.shape() {
        [_, queries, _] => *queries,
        _ => 1,
    };
    let keys = k.0.shape()[1];
    by_image(rows, queries)
        .into_iter()
        .map(|(image, rows)| {
            let wanted: Vec<usize> = rows.iter().map(|&(_, query)| query).collect();
            let all: Vec<usize> = (0..keys).collect();
            let arrays = vec![
                tokens(q, image, &wanted, c)?,
                tokens(k, image, &all, c)?,
                tokens(v, image, &all, c)?,
            ];
            let separate = Attention {
                operands: AttentionOperands::Separate,
                ..*spec
            };
            let rows: Vec<usize> = rows.into_iter().map(|(row, _)| row).collect();
            let padding = |mask: &Mask| match mask.padding {
                true => image_of(at(3)?, image).map(|keys| Some(keys.into_values())),
                false => Ok(None),
            };
            let mask = match mask {
                Some(mask) => Some(Visible {
                    mask,
                    queries,
                    keys,
                    padding: padding(&mask)?,
                }),
                None => None,
            };
            Ok(Part {
                mask,
                queries: wanted,
                ..Part::new(Op::Attention(separate), arrays, &rows)
            })
        })
        .collect()
}

/// `c` channels from `offset` on of these tokens of an image: `[1, tokens, c]`.
fn tokens(
    (tensor, offset): (&Tensor, usize),
    image: usize,
    tokens: &[usize],
    c: usize,
) -> Result<Array, String> {
    let (images, count, channels) = match *tensor.shape() {
        [images, channels] => (images, 1, channels),
        [images, count, channels] => (images, count, channels),
        ref shape => return Err(format!("takes tokens, not {shape:?}")),
    };
    let image = if images == 1 { 0 } else { image };
    let values = tensor.to_f32();
    let token = |token: &usize| values[(image * count + token) * channels + offset..][..c].iter();
    let gathered = tokens.iter().flat_map(token).map(|&v| f64::from(v)).collect();
    Array::new([1, tokens.len(), c], gathered).ok_or_else(|| "an operand of another size".into())
}
