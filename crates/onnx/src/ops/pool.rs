//! Pooling, interpolation and sampling of images.

use hipvit_graph::op::grid_sample::{Outside, SampleKernel};
use hipvit_graph::op::interpolate::{Coordinates, InterpolationKernel, NearestRounding};
use hipvit_graph::op::reduce::ReduceKind;
use hipvit_graph::op::{AveragePool, GridSample, Interpolate, MaxPool};

use super::Group;
use super::conv::{channels_first, channels_last, spatial, window};
use super::reduce::reduce_axes;
use crate::context::Context;
use crate::dim::Dim;
use crate::error::{Refusal, refuse};
use crate::value::{Value, axis, show};

pub(super) const OPS: Group = &[
    ("AveragePool", average_pool),
    ("GlobalAveragePool", |c| global_pool(c, ReduceKind::Mean)),
    ("GlobalMaxPool", |c| global_pool(c, ReduceKind::Max)),
    ("GridSample", grid_sample),
    ("MaxPool", max_pool),
    ("Resize", resize),
];

fn global_pool(context: &mut Context<'_>, kind: ReduceKind) -> Result<Vec<Value>, Refusal> {
    let x = context.input(0)?;
    if x.rank() < 3 {
        refuse!("takes images [N, C, H, W], got {}", show(&x.dims));
    }
    let axes: Vec<usize> = (2..x.rank()).collect();
    reduce_axes(context.builder, &x, kind, &axes, true).map(|value| vec![value])
}

fn max_pool(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let x = context.input(0)?;
    let window = window(context, &x, None)?;
    let ceil = context.flag("ceil_mode", false);
    context.ignore(&["storage_order"]);
    if context.wants(1) {
        refuse!("has the indices of the maxima as an output, which is not supported");
    }
    let op = MaxPool {
        kernel: window.kernel,
        stride: window.stride,
        dilation: window.dilation,
        padding: window.padding,
        ceil,
    };
    let builder = &mut *context.builder;
    let input = channels_last(builder, &x)?;
    let result = builder.apply(op, &[&input])?;
    channels_first(builder, &result, x.rank()).map(|value| vec![value])
}

fn average_pool(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let x = context.input(0)?;
    let window = window(context, &x, None)?;
    let op = AveragePool {
        kernel: window.kernel,
        stride: window.stride,
        dilation: window.dilation,
        padding: window.padding,
        ceil: context.flag("ceil_mode", false),
        count_padding: context.flag("count_include_pad", false),
    };
    let builder = &mut *context.builder;
    let input = channels_last(builder, &x)?;
    let result = builder.apply(op, &[&input])?;
    channels_first(builder, &result, x.rank()).map(|value| vec![value])
}

/// Returns the extents of the result and the scales, for height and width.
fn sizes(context: &Context<'_>, x: &Value) -> Result<([usize; 2], Option<[f32; 2]>), Refusal> {
    let rank = x.rank();
    let axes: Vec<usize> = match context.ints("axes") {
        Some(axes) => axes
            .iter()
            .map(|&one| axis(one, rank))
            .collect::<Result<_, _>>()?,
        None => (0..rank).collect(),
    };
    let [height, width] = spatial(x)?;
    let before = [height, width];
    // Position of an axis among height and width. A sequence has width only.
    let place = |axis: usize| (axis + 4).checked_sub(rank + 2).filter(|_| axis >= 2);
    let has_elements = |value: &Value| value.dims != [Dim::Fixed(0)];
    if let Some(scales) = context.optional(2).filter(has_elements) {
        let Some(scales) = scales.numbers() else {
            refuse!("has scales that depend on the input, not fixed ones");
        };
        if scales.len() != axes.len() {
            refuse!("has {} scales for {} axes", scales.len(), axes.len());
        }
        let mut all = [1.0f32; 2];
        for (&axis, &scale) in axes.iter().zip(&scales) {
            match place(axis) {
                Some(place) => all[place] = scale as f32,
                None if scale == 1.0 => {}
                None => refuse!(
                    "scales axis {axis} of {}, but only images are supported",
                    show(&x.dims)
                ),
            }
        }
        let size = [0, 1].map(|place| (before[place] as f32 * all[place]).floor() as usize);
        return Ok((size, Some(all)));
    }
    let Some(sizes) = context.optional(3).filter(has_elements) else {
        refuse!("has neither scales nor sizes");
    };
    let sizes = sizes.linear_integers("sizes")?;
    if sizes.len() != axes.len() {
        refuse!("has {} sizes for {} axes", sizes.len(), axes.len());
    }
    let mut size = before;
    for (&axis, size_of) in axes.iter().zip(sizes.iter()) {
        match (
            place(axis),
            size_of.known().and_then(|size| usize::try_from(size).ok()),
        ) {
            (Some(place), Some(extent)) => size[place] = extent,
            (None, _) if size_of.dim() == Some(x.dims[axis]) => {}
            _ => refuse!(
                "resizes axis {axis} of {}, but only images are supported",
                show(&x.dims)
            ),
        }
    }
    Ok((size, None))
}

fn resize(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let x = context.input(0)?;
    let (size, scale) = sizes(context, &x)?;
    let policy = context.string_or("keep_aspect_ratio_policy", "stretch");
    context.ignore(&["extrapolation_value"]);
    if policy != "stretch" {
        refuse!("has the keep_aspect_ratio_policy `{policy}`, which is not supported");
    }
    let coordinates = match context
        .string_or("coordinate_transformation_mode", "half_pixel")
        .as_str()
    {
        "half_pixel" => Coordinates::HalfPixel,
        "half_pixel_symmetric" => Coordinates::HalfPixelSymmetric,
        "pytorch_half_pixel" => Coordinates::PytorchHalfPixel,
        "align_corners" => Coordinates::AlignCorners,
        "asymmetric" => Coordinates::Asymmetric,
        mode => refuse!("has the coordinate_transformation_mode `{mode}`, which is not supported"),
    };
    let rounding = match context.string_or("nearest_mode", "round_prefer_floor").as_str() {
        "round_prefer_floor" => NearestRounding::PreferFloor,
        "round_prefer_ceil" => NearestRounding::PreferCeil,
        "floor" => NearestRounding::Floor,
        "ceil" => NearestRounding::Ceil,
        mode => refuse!("has the nearest_mode `{mode}`, which is not supported"),
    };
    let coefficient = context.float_or("cubic_coeff_a", -0.75);
    let kernel = match context.string_or("mode", "nearest").as_str() {
        "nearest" => InterpolationKernel::Nearest(rounding),
        "linear" => InterpolationKernel::Linear,
        "cubic" => InterpolationKernel::Cubic(coefficient),
        mode => refuse!("has the mode `{mode}`, which is not supported"),
    };
    let op = Interpolate {
        size,
        scale,
        kernel,
        coordinates,
        antialias: context.flag("antialias", false),
        exclude_outside: context.flag("exclude_outside", false),
    };
    if size == spatial(&x)? && scale.is_none_or(|scale| scale == [1.0; 2]) {
        return Ok(vec![x]);
    }
    let builder = &mut *context.builder;
    let input = channels_last(builder, &x)?;
    let result = builder.apply(op, &[&input])?;
    channels_first(builder, &result, x.rank()).map(|value| vec![value])
}

fn grid_sample(context: &mut Context<'_>) -> Result<Vec<Value>, Refusal> {
    let [x, grid] = [context.input(0)?, context.input(1)?];
    if x.rank() != 4 || grid.rank() != 4 || grid.dims[3] != Dim::Fixed(2) {
        refuse!(
            "samples {} at {}, but only images are supported",
            show(&x.dims),
            show(&grid.dims)
        );
    }
    let kernel = match context.string_or("mode", "linear").as_str() {
        "linear" | "bilinear" => SampleKernel::Linear,
        "nearest" => SampleKernel::Nearest,
        "cubic" | "bicubic" => SampleKernel::Cubic,
        mode => refuse!("has the mode `{mode}`, which is not supported"),
    };
    let outside = match context.string_or("padding_mode", "zeros").as_str() {
        "zeros" => Outside::Zeros,
        "border" => Outside::Edge,
        "reflection" => Outside::Reflect,
        mode => refuse!("has the padding_mode `{mode}`, which is not supported"),
    };
    let op = GridSample {
        kernel,
        outside,
        align_corners: context.flag("align_corners", false),
    };
    let builder = &mut *context.builder;
    let images = channels_last(builder, &x)?;
    let samples = builder.apply(op, &[&images, &grid])?;
    channels_first(builder, &samples, 4).map(|value| vec![value])
}
