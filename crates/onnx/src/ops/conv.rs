//! Convolutions. Graphs compute them with channels last.

use hipvit_graph::Provenance;
use hipvit_graph::op::{Activation, Conv, ConvTranspose};
use hipvit_graph::pattern::floats;
use hipvit_graph::tensor::Tensor;

use super::Group;
use super::elementwise::{apply, sum};
use super::layout::{permute, reshape_to};
use super::matmul::linear;
use crate::builder::Builder;
use crate::context::Context;
use crate::dim::Dim;
use crate::error::{Refusal, refuse};
use crate::value::{Value, count, show};

pub(super) const OPS: Group = &[
    ("Col2Im", columns_to_image),
    ("Conv", conv),
    ("ConvTranspose", conv_transpose),
];

pub(super) const MICROSOFT: Group = &[("FusedConv", fused_conv)];

/// Converts images to channels last, `[N, C, H, W]` to `[N, H, W, C]`. A sequence `[N, C, L]` is an image of one row.
pub(super) fn channels_last(builder: &mut Builder, x: &Value) -> Result<Value, Refusal> {
    match x.dims[..] {
        [n, c, length] => {
            let rows = reshape_to(builder, x, &[n, c, Dim::Fixed(1), length])?;
            permute(builder, &rows, &[0, 2, 3, 1])
        }
        [_, _, _, _] => permute(builder, x, &[0, 2, 3, 1]),
        _ => refuse!(
            "takes images [N, C, H, W] or sequences [N, C, L], got {}",
            show(&x.dims)
        ),
    }
}

/// Converts images from channels last back to the rank that they had.
pub(super) fn channels_first(builder: &mut Builder, x: &Value, rank: usize) -> Result<Value, Refusal> {
    let images = permute(builder, x, &[0, 3, 1, 2])?;
    match images.dims[..] {
        [n, c, _, length] if rank == 3 => reshape_to(builder, &images, &[n, c, length]),
        _ => Ok(images),
    }
}

/// Places of a sliding window, down and across.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) kernel: [usize; 2],
    pub(super) stride: [usize; 2],
    pub(super) dilation: [usize; 2],
    pub(super) padding: [[usize; 2]; 2],
}

/// Padding that an attribute gives.
enum Padding {
    Given([[usize; 2]; 2]),
    /// As much as makes the result as large as the operand divided by the stride. True if the odd element is at the end.
    Same {
        upper: bool,
    },
}

/// Reads extents of a window: two for images, one for sequences.
fn extents(context: &Context<'_>, name: &str, rank: usize) -> Result<Option<[usize; 2]>, Refusal> {
    let Some(given) = context.ints(name) else {
        return Ok(None);
    };
    extents_of(name, given, rank).map(Some)
}

fn extents_of(name: &str, given: &[i64], rank: usize) -> Result<[usize; 2], Refusal> {
    let extent = |extent: i64| usize::try_from(extent).ok().filter(|&extent| extent < 1 << 20);
    match (rank, given) {
        (4, &[down, across]) => {
            if let (Some(down), Some(across)) = (extent(down), extent(across)) {
                return Ok([down, across]);
            }
        }
        (3, &[across]) => {
            if let Some(across) = extent(across) {
                return Ok([1, across]);
            }
        }
        _ => {}
    }
    refuse!("has the {name} {given:?} for an operand with {rank} axes")
}

fn padding(context: &Context<'_>, rank: usize) -> Result<Padding, Refusal> {
    let given = context.ints("pads");
    Ok(match context.string_or("auto_pad", "NOTSET").as_str() {
        "NOTSET" => Padding::Given(match given {
            None => [[0; 2]; 2],
            Some(pads) => {
                let (before, after) = pads.split_at(pads.len() / 2);
                let mut begin = extents_of("pads", before, rank)?;
                let mut end = extents_of("pads", after, rank)?;
                if rank == 3 {
                    // A sequence is an image of one row.
                    (begin[0], end[0]) = (0, 0);
                }
                [[begin[0], end[0]], [begin[1], end[1]]]
            }
        }),
        "VALID" => Padding::Given([[0; 2]; 2]),
        "SAME_UPPER" => Padding::Same { upper: true },
        "SAME_LOWER" => Padding::Same { upper: false },
        other => refuse!("has the auto_pad `{other}`, which is not supported"),
    })
}

/// Reads the attributes of a sliding window over `x`. `kernel` is that of the weight, if there is one.
pub(super) fn window(
    context: &Context<'_>,
    x: &Value,
    kernel: Option<[usize; 2]>,
) -> Result<Window, Refusal> {
    let rank = x.rank();
    if rank != 3 && rank != 4 {
        refuse!(
            "takes images [N, C, H, W] or sequences [N, C, L], got {}",
            show(&x.dims)
        );
    }
    let given = extents(context, "kernel_shape", rank)?;
    let kernel = match (given, kernel) {
        (Some(given), Some(kernel)) if given != kernel => {
            refuse!("has the kernel_shape {given:?}, but a weight of {kernel:?}")
        }
        (Some(kernel), _) | (None, Some(kernel)) => kernel,
        (None, None) => refuse!("lacks its kernel_shape"),
    };
    let stride = extents(context, "strides", rank)?.unwrap_or([1; 2]);
    let dilation = extents(context, "dilations", rank)?.unwrap_or([1; 2]);
    if kernel.contains(&0) || stride.contains(&0) || dilation.contains(&0) {
        refuse!("has the kernel {kernel:?}, the strides {stride:?} and the dilations {dilation:?}");
    }
    let padding = match padding(context, rank)? {
        Padding::Given(padding) => padding,
        Padding::Same { upper } => {
            let spatial = spatial(x)?;
            [0, 1].map(|axis| {
                let result = spatial[axis].div_ceil(stride[axis]);
                let reach = (result - usize::from(result > 0)) * stride[axis]
                    + (kernel[axis] - 1) * dilation[axis]
                    + 1;
                let total = reach.saturating_sub(spatial[axis]);
                let (less, more) = (total / 2, total.div_ceil(2));
                if upper { [less, more] } else { [more, less] }
            })
        }
    };
    Ok(Window {
        kernel,
        stride,
        dilation,
        padding,
    })
}

/// Returns height and width of images. A sequence has one row.
pub(super) fn spatial(x: &Value) -> Result<[usize; 2], Refusal> {
    let extents = match x.dims[..] {
        [_, _, length] => [Some(1), length.fixed()],
        [_, _, height, width] => [height.fixed(), width.fixed()],
        _ => refuse!(
            "takes images [N, C, H, W] or sequences [N, C, L], got {}",
            show(&x.dims)
        ),
    };
    match extents {
        [Some(height), Some(width)] => Ok([height, width]),
        _ => refuse!(
            "has the extents {}, whose height or width depends on the batch size",
            show(&x.dims)
        ),
    }
}

fn kernel(weight: &Value) -> Result<[usize; 2], Refusal> {
    match weight.fixed_shape()?[..] {
        [_, _, height, width] => Ok([height, width]),
        [_, _, length] => Ok([1, length]),
        _ => refuse!(
            "has a weight of shape {}, not [K, C, h, w] or [K, C, l]",
            show(&weight.dims)
        ),
    }
}

fn groups(context: &Context<'_>) -> Result<usize, Refusal> {
    let given = context.int_or("group", 1);
    match usize::try_from(given) {
        Ok(groups) if groups > 0 => Ok(groups),
        _ => refuse!("has {given} groups"),
    }
}

/// Computes a convolution, adds a value of the result's extents, and applies an activation.
fn fused_conv(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let name = context.string_or("activation", "");
    let parameters = context.floats("activation_params").unwrap_or_default().to_vec();
    let added = context.optional(3);
    let mut y = conv(context)?.swap_remove(0);
    let builder = &mut *context.builder;
    if let Some(added) = added {
        y = sum(builder, &y, &added)?;
    }
    activated(builder, y, &name, &parameters).map(|value| vec![value])
}

/// Applies an activation by the name that ONNX Runtime's fused operators give it. An empty name is none.
pub(super) fn activated(
    builder: &mut Builder,
    y: Value,
    name: &str,
    parameters: &[f32],
) -> Result<Value, Refusal> {
    let x = floats::operand(0);
    let expression = match (name, parameters) {
        ("", _) => return Ok(y),
        ("Relu", _) => return builder.apply(Activation::Relu, &[&y]),
        ("Tanh", _) => return builder.apply(Activation::Tanh, &[&y]),
        ("Sigmoid", _) => x.sigmoid(),
        ("LeakyRelu", &[slope]) => x.leaky_relu(slope),
        ("Clip", &[low, high]) => x.clip(low, high),
        ("HardSigmoid", &[alpha, beta]) => x.hard_sigmoid(alpha, beta),
        _ => refuse!("has the activation `{name}` with {parameters:?}, which is not supported"),
    };
    apply(builder, expression, &[&y], y.element)
}

fn conv(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let (x, weight) = (context.input(0)?, context.input(1)?);
    let bias = context.optional(2);
    let window = window(context, &x, Some(kernel(&weight)?))?;
    let op = Conv {
        stride: window.stride,
        dilation: window.dilation,
        padding: window.padding,
        groups: groups(context)?,
        bias: bias.is_some(),
        ..Conv::new(window.kernel)
    };
    if weight.rank() != x.rank() {
        refuse!(
            "has an operand {} and a weight {}",
            show(&x.dims),
            show(&weight.dims)
        );
    }
    let builder = &mut *context.builder;
    let weight = channels_last(builder, &weight)?;
    let input = channels_last(builder, &x)?;
    let result = if op.is_pointwise() {
        let matrix = reshape_to(builder, &weight, &[weight.dims[0], weight.dims[3]])?;
        linear(builder, &input, &matrix, bias.as_ref())?
    } else {
        let mut operands = vec![&input, &weight];
        operands.extend(bias.as_ref());
        builder.apply(op, &operands)?
    };
    channels_first(builder, &result, x.rank()).map(|value| vec![value])
}

fn conv_transpose(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let (x, weight) = (context.input(0)?, context.input(1)?);
    let bias = context.optional(2);
    let groups = groups(context)?;
    if context.ints("output_shape").is_some() {
        refuse!("has an output_shape, which is not supported");
    }
    let window = window(context, &x, Some(kernel(&weight)?))?;
    let rank = x.rank();
    let output_padding = match context.ints("output_padding") {
        None => [0; 2],
        Some(given) => {
            let mut extents = extents_of("output_padding", given, rank)?;
            if rank == 3 {
                extents[0] = 0;
            }
            extents
        }
    };
    if context.string_or("auto_pad", "NOTSET").starts_with("SAME") {
        refuse!("has an auto_pad, which is not supported");
    }
    let op = ConvTranspose {
        stride: window.stride,
        dilation: window.dilation,
        padding: window.padding,
        output_padding,
        groups,
        bias: bias.is_some(),
        ..ConvTranspose::new(window.kernel)
    };
    let builder = &mut *context.builder;
    // [C, K/groups, h, w] to [K, h, w, C/groups].
    let [height, width] = window.kernel;
    let &[channels, results, ..] = &weight.fixed_shape()?[..] else {
        refuse!("has a weight of shape {}", show(&weight.dims));
    };
    if weight.rank() != rank || channels % groups != 0 {
        refuse!(
            "has an operand {} and a weight {} in {groups} groups",
            show(&x.dims),
            show(&weight.dims)
        );
    }
    let split = [groups, channels / groups, results, height, width].map(Dim::Fixed);
    let weight = reshape_to(builder, &weight, &split)?;
    let weight = permute(builder, &weight, &[0, 2, 3, 4, 1])?;
    let results = results.checked_mul(groups).ok_or("has too many channels")?;
    let weight = reshape_to(
        builder,
        &weight,
        &[results, height, width, channels / groups].map(Dim::Fixed),
    )?;
    let input = channels_last(builder, &x)?;
    let mut operands = vec![&input, &weight];
    operands.extend(bias.as_ref());
    let result = builder.apply(op, &operands)?;
    channels_first(builder, &result, rank).map(|value| vec![value])
}

/// Adds up the windows of an image: a transposed convolution of the windows' elements as channels.
fn columns_to_image(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let x = context.input(0)?;
    let [image, block] = [1, 2].map(|index| {
        context
            .input(index)
            .and_then(|value| value.known_integers("extents"))
    });
    let (image, block) = (
        extents_of("image_shape", &image?, 4)?,
        extents_of("block_shape", &block?, 4)?,
    );
    let stride = extents(context, "strides", 4)?.unwrap_or([1; 2]);
    let dilation = extents(context, "dilations", 4)?.unwrap_or([1; 2]);
    let Padding::Given(padding) = padding(context, 4)? else {
        refuse!("has an auto_pad, which is not supported");
    };
    let &[n, columns, places] = &x.dims[..] else {
        refuse!("takes [N, C·h·w, L], got {}", show(&x.dims));
    };
    let (Some(columns), Some(places)) = (columns.fixed(), places.fixed()) else {
        refuse!("has extents that depend on the batch size: {}", show(&x.dims));
    };
    let elements = block[0] * block[1];
    if elements == 0 || columns % elements != 0 || stride.contains(&0) || dilation.contains(&0) {
        refuse!("adds up windows of {block:?} of {columns} channels");
    }
    let channels = columns / elements;
    let mut grid = [0; 2];
    let mut output_padding = [0; 2];
    for axis in 0..2 {
        let reach = (block[axis] - 1) * dilation[axis] + 1;
        let padded = image[axis] + padding[axis][0] + padding[axis][1];
        let Some(free) = padded.checked_sub(reach) else {
            refuse!("adds up windows of {block:?} to an image of {image:?}");
        };
        (grid[axis], output_padding[axis]) = (free / stride[axis] + 1, free % stride[axis]);
    }
    if grid[0] * grid[1] != places {
        refuse!("has {places} windows, but an image of {image:?} has {grid:?}");
    }
    // Element t of a window goes to place t of the kernel.
    let one = |index: usize| {
        if index / elements % elements == index % elements {
            1.0
        } else {
            0.0
        }
    };
    let len = count(&[channels, elements, elements])?;
    let weight: Vec<f32> = (0..len).map(one).collect();
    let weight = Tensor::from_f32([channels, block[0], block[1], elements], weight).ok_or("is too large")?;
    let weight = Value::constant(x.element, weight, Provenance::computed("windows", []));
    let op = ConvTranspose {
        stride,
        dilation,
        padding,
        output_padding,
        groups: channels,
        ..ConvTranspose::new(block)
    };
    let builder = &mut *context.builder;
    let images = reshape_to(
        builder,
        &x,
        &[n, Dim::Fixed(columns), Dim::Fixed(grid[0]), Dim::Fixed(grid[1])],
    )?;
    let input = channels_last(builder, &images)?;
    let result = builder.apply(op, &[&input, &weight])?;
    channels_first(builder, &result, 4).map(|value| vec![value])
}
