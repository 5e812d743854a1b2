//! `hipvit quantize` writes a copy of a model with 8-bit, bf16 or 2:4 sparse weights.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::ValueEnum;
use hipvit::evaluate::LabelledSet;
use hipvit::pipeline::Source;
use hipvit::run_config::parsers;
use hipvit::{DType, Device, Session};
use hipvit_diagnostics::table::{Column, Table};
use hipvit_files::regular_file;
use hipvit_quantize::{
    ActivationRange, Decision, Fidelity, GpuTarget, OnGpu, Options, Precision, Report, Reverted, Scales,
    Sparsity, quantize,
};

use super::decode_args::DecodeArgs;
use super::inputs::images_below;
use super::model_args::NamedModel;
use super::outcome::{Outcome, Usage, refused};
use super::{output, record};

const EXAMPLES: &str = "\
Examples:
  hipvit quantize MODEL -o model-int8 --calibrate photos/
  hipvit quantize MODEL -o model-fp8 --to fp8 --calibrate photos/
  hipvit quantize MODEL -o model-auto --to auto --calibrate photos/ --budget 0.5%
  hipvit quantize MODEL -o model-24 --sparse 2:4 --calibrate photos/

docs/precision.md describes what each device computes at each precision.";

#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// Images for calibration, or a safetensors file
    ///
    /// With int8, SmoothQuant scales channels with large activations down, and the following weights up. With --sparse,
    /// SparseGPT adjusts the remaining weights to compensate for the pruned ones.
    #[arg(long, value_name = "IMAGES", num_args = 1.., help_heading = "Input")]
    calibrate: Vec<PathBuf>,
    #[command(flatten)]
    decode: DecodeArgs,
    #[command(flatten)]
    model: NamedModel,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    precision: PrecisionArgs,
    /// Output directory, which must be empty or not exist
    #[arg(long, short, value_name = "DIR", value_hint = clap::ValueHint::DirPath, help_heading = "Output")]
    output: PathBuf,
    /// Print one JSON object
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// Precision and rounding of the weights.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Precision")]
struct PrecisionArgs {
    /// Precision of the linear layers [default: int8]
    #[arg(long, value_name = "PRECISION")]
    to: Option<LayerPrecision>,
    /// Prune two of every four weights
    ///
    /// By default, the weights with the smallest magnitudes are pruned. With --calibrate, SparseGPT minimises the error of
    /// each layer's output. Without --to, the weights keep their precision.
    #[arg(long, value_name = "PATTERN")]
    sparse: Option<SparsePattern>,
    /// Maximum error of the logits, for --to auto
    ///
    /// The error is the root mean square error relative to the logits. A fifth of the images is held out, and the error
    /// on these images must also be within the maximum.
    #[arg(long, value_name = "PERCENT", default_value = "0.5%", value_parser = parse_percent)]
    budget: f64,
    /// Rule for the scale of each output channel
    #[arg(long, value_name = "RULE", default_value = "amax", hide_short_help = true)]
    scales: WeightScale,
    /// Largest activation in FP8: amax, mse or a percentile
    ///
    /// amax is the largest magnitude on the images. mse is the limit with the smallest mean square error. 99.99% is that
    /// percentile of the magnitudes. Larger activations are clipped.
    #[arg(long, value_name = "RULE", default_value = "amax", value_parser = parse_range, hide_short_help = true)]
    activation_range: ActivationRange,
}

/// Device on which `--to auto` measures times.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Device")]
struct TargetArgs {
    /// Device on which --to auto measures times
    #[arg(long, value_name = "DEVICE", default_value = "cpu", value_parser = parsers::device())]
    device: Device,
    /// Precision of activations on a GPU [default: bf16]
    #[arg(long, value_name = "DTYPE", value_parser = parsers::dtype())]
    dtype: Option<DType>,
    /// Images per run on a GPU
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = parsers::positive)]
    batch: usize,
}

/// Precision of the linear layers.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum LayerPrecision {
    /// Int8 weights and activations, one activation scale per token
    Int8,
    /// FP8 (E4M3) weights, and activations if calibrated
    Fp8,
    /// FP8 weights and activations, one activation scale per token
    Fp8Dynamic,
    /// Bf16 weights, and activations on the CPU
    Bf16,
    /// A precision per layer, within --budget
    Auto,
    /// Unchanged precision (only with --sparse)
    Full,
}

/// Sparsity pattern of the weights.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum SparsePattern {
    /// Two of every four weights along the input channels
    #[value(name = "2:4")]
    TwoOfFour,
}

/// Rule for the scale of an output channel.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum WeightScale {
    /// Scale by the largest magnitude
    Amax,
    /// Scale with the smallest mean square error
    Mse,
}

impl Args {
    pub(crate) fn run(&self) -> Result<Outcome> {
        let to = match (self.precision.to, self.precision.sparse) {
            (Some(LayerPrecision::Full), None) => {
                return Err(Usage(
                    "--to full has no effect alone. Add --sparse 2:4, or choose another precision",
                )
                .into());
            }
            (Some(to), _) => to,
            (None, None) => LayerPrecision::Int8,
            (None, Some(_)) => LayerPrecision::Full,
        };
        let precision = match to {
            LayerPrecision::Full => Precision::Full,
            LayerPrecision::Int8 => Precision::Int8,
            LayerPrecision::Auto if !self.calibrate.is_empty() => Precision::Int8,
            LayerPrecision::Auto => {
                return Err(Usage("--to auto needs images to measure errors: add --calibrate IMAGES").into());
            }
            LayerPrecision::Fp8 => Precision::Fp8,
            LayerPrecision::Fp8Dynamic if !self.calibrate.is_empty() && self.precision.sparse.is_none() => {
                return Err(
                    Usage("--to fp8-dynamic scales each token at run time: leave out --calibrate").into(),
                );
            }
            LayerPrecision::Fp8Dynamic => Precision::Fp8Dynamic,
            LayerPrecision::Bf16 if !self.calibrate.is_empty() && self.precision.sparse.is_none() => {
                return Err(Usage("--to bf16 has no scales to calibrate: leave out --calibrate").into());
            }
            LayerPrecision::Bf16 => Precision::Bf16,
        };
        if precision == Precision::Fp8
            && !self.calibrate.is_empty()
            && matches!(self.precision.scales, WeightScale::Mse)
        {
            let reason = "--scales mse sets a scale per output channel, but with --to fp8 --calibrate a weight has one scale. Leave out --scales";
            return Err(Usage(reason).into());
        }
        let calibrates_fp8 = match to {
            LayerPrecision::Fp8 => !self.calibrate.is_empty(),
            LayerPrecision::Auto => self.target.device != Device::Cpu,
            _ => false,
        };
        if self.precision.activation_range != ActivationRange::Largest && !calibrates_fp8 {
            let reason = "--activation-range needs calibrated FP8 activations: use --to fp8 with --calibrate, or --to auto on a GPU";
            return Err(Usage(reason).into());
        }
        let scales = match self.precision.scales {
            WeightScale::Amax => Scales::Largest,
            WeightScale::Mse => Scales::MeanSquare,
        };
        let sources = self.sources()?;
        if sources.is_empty() && !self.calibrate.is_empty() {
            let reason = "--calibrate: no images found. Name image files, a directory of images, or a safetensors file";
            return Err(Usage(reason).into());
        }
        let decode = self.decode.options();
        let images = sources.iter().map(|source| source.decode(decode));
        let report = quantize(
            self.model.path().map(PathBuf::as_path),
            &self.output,
            Options {
                precision,
                scales,
                budget: matches!(to, LayerPrecision::Auto).then_some(self.precision.budget),
                activation_range: self.precision.activation_range,
                target: self.target(to)?,
                sparsity: self
                    .precision
                    .sparse
                    .map(|SparsePattern::TwoOfFour| Sparsity::TwoOfFour),
            },
            images,
        )?;
        if let Some(decision) = &report.decision {
            warn_beyond_budget(decision);
        }
        let mut out = output::stdout();
        if self.json {
            record::write(&mut out, &report)?;
        } else {
            print(&mut out, &self.output, &report, self.precision.activation_range)?;
        }
        Ok(Outcome::Complete)
    }

    /// Returns the GPU on which `--to auto` measures times; `None` for the CPU.
    fn target(&self, to: LayerPrecision) -> Result<Option<GpuTarget>> {
        if !matches!(to, LayerPrecision::Auto) {
            return match (self.target.device, self.target.dtype) {
                (Device::Cpu, None) => Ok(None),
                _ => {
                    let reason = "--device and --dtype need --to auto, which measures times. Leave them out for another precision";
                    Err(Usage(reason).into())
                }
            };
        }
        let dtype = self.target.dtype.unwrap_or(match self.target.device {
            Device::Cpu => DType::F32,
            _ => DType::BF16,
        });
        let builder = Session::builder().device(self.target.device).dtype(dtype);
        let target = |device| GpuTarget {
            device,
            dtype,
            batch: self.target.batch,
        };
        Ok(builder.open_device()?.map(target))
    }

    /// Returns the calibration images.
    fn sources(&self) -> Result<Vec<Source>> {
        let mut sources = Vec::new();
        for path in &self.calibrate {
            if path.is_dir() {
                let (files, errors) = images_below(path);
                if let Some(error) = errors.into_iter().next() {
                    bail!(error);
                }
                sources.extend(files.into_iter().map(Source::File));
            } else if path
                .extension()
                .is_some_and(|extension| extension == "safetensors")
            {
                let bytes = regular_file::read(path).map_err(refused(path))?;
                let set = LabelledSet::from_safetensors(path, &bytes)?;
                sources.extend(set.into_iter().map(|(source, _)| source));
            } else {
                sources.push(Source::File(path.clone()));
            }
        }
        Ok(sources)
    }
}

fn print(out: &mut impl Write, directory: &Path, report: &Report, range: ActivationRange) -> Result<()> {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let Report {
        precision,
        quantized,
        balanced,
        images,
        bytes_before,
        bytes_after,
        ..
    } = *report;
    let what = match precision {
        Precision::Full => "weights in their original precision".to_owned(),
        _ => match &report.decision {
            Some(decision) => weights_by_precision(decision),
            None if precision == Precision::Fp8Dynamic => format!("{quantized} weights in fp8"),
            None => format!("{quantized} weights in {}", precision.name()),
        },
    };
    writeln!(
        out,
        "{}: {what}, {:.1} MiB instead of {:.1} MiB ({:+.1} %)",
        super::escape::one_line(&directory.display().to_string()),
        mib(bytes_after),
        mib(bytes_before),
        100.0 * (bytes_after as f64 / bytes_before as f64 - 1.0),
    )?;
    if let Some(sparsity) = &report.sparsity {
        writeln!(out, "{sparsity}")?;
        match images {
            0 => writeln!(
                out,
                "pruned by magnitude; use --calibrate IMAGES to reduce the error with SparseGPT"
            )?,
            _ => writeln!(out, "pruned by SparseGPT with {images} images")?,
        }
    }
    if !report.unpruned.is_empty() {
        let layers = report.unpruned.join(", ");
        writeln!(
            out,
            "not pruned, because the number of input channels is not a multiple of four: {}",
            super::escape::one_line(&layers)
        )?;
    }
    match images {
        _ if precision == Precision::Full => {}
        _ if precision == Precision::Bf16 => writeln!(
            out,
            "the CPU rounds the activations of these layers to bf16; GPUs compute the layers in --dtype"
        )?,
        0 if precision == Precision::Fp8 => writeln!(
            out,
            "weights are dequantised at load time, which gives no speed-up; use --calibrate IMAGES or --to fp8-dynamic"
        )?,
        _ if precision == Precision::Fp8Dynamic => writeln!(
            out,
            "activations are rounded to fp8 at run time; the largest magnitude of each token sets its scale"
        )?,
        _ if precision == Precision::Fp8 => {
            let rule = match range {
                ActivationRange::Percentile(percentile) => {
                    format!("percentile {percentile}")
                }
                ActivationRange::MeanSquare => "the smallest mean square error".to_owned(),
                _ => "the largest magnitude".to_owned(),
            };
            writeln!(
                out,
                "activations are rounded to fp8; {rule} on {images} images sets each layer's scale"
            )?;
        }
        0 => writeln!(
            out,
            "not calibrated; use --calibrate IMAGES to balance channels with large activations"
        )?,
        _ => writeln!(
            out,
            "calibrated with {images} images; SmoothQuant balanced {balanced} norms with the following layers"
        )?,
    }
    if let Some(decision) = &report.decision {
        return print_decision(out, decision);
    }
    if !report.unquantized.is_empty() {
        writeln!(
            out,
            "not quantised: {}",
            super::escape::one_line(&report.unquantized.join(", "))
        )?;
    }
    Ok(())
}

/// Returns the number of weights in each precision, such as `20 weights in int8, 12 in bf16`.
fn weights_by_precision(decision: &Decision) -> String {
    let counts = [Precision::Fp8, Precision::Int8, Precision::Bf16].map(|precision| {
        let count = decision.layers(precision).count();
        (count, precision.name())
    });
    let mut parts = counts.into_iter().filter(|(count, _)| *count > 0);
    let (count, name) = parts.next().unwrap_or((0, Precision::Int8.name()));
    let first = format!("{count} weights in {name}");
    parts.fold(first, |text, (count, name)| format!("{text}, {count} in {name}"))
}

fn print_decision(out: &mut impl Write, decision: &Decision) -> Result<()> {
    let others: Vec<&str> = match decision.choices.first() {
        Some(choice) => choice
            .candidates
            .iter()
            .map(|candidate| candidate.precision.name())
            .collect(),
        None => Vec::new(),
    };
    let mut columns = vec![
        Column::left("layers").wraps(20),
        Column::left("precision"),
        Column::right("full").rank(1),
    ];
    for name in &others {
        columns.push(Column::right(format!("{name}: error alone")));
        columns.push(Column::right(format!("{name}: time")).rank(1));
    }
    let mut table = Table::new(columns);
    let time = |us: f64| format!("{us:.0} µs");
    let [mut before, mut after] = [0.0; 2];
    for choice in &decision.choices {
        let mut row = vec![
            super::escape::one_line(&choice.layers.join(", ")).to_string(),
            choice.precision.name().to_owned(),
            time(choice.full_us),
        ];
        let mut chosen_us = choice.full_us;
        for candidate in &choice.candidates {
            row.extend([percent(candidate.error), time(candidate.us)]);
            if candidate.precision == choice.precision {
                chosen_us = candidate.us;
            }
        }
        before += choice.full_us;
        after += chosen_us;
        table.row(row);
    }
    writeln!(out, "{}", table.text(output::width()))?;
    writeln!(
        out,
        "time of these layers: {} in full precision, {} in the chosen precisions, on {}",
        time(before),
        time(after),
        super::escape::one_line(&decision.measured_on)
    )?;
    writeln!(
        out,
        "error (budget {}):\n  calibration images: {}",
        percent(decision.budget),
        fidelity(&decision.calibration)
    )?;
    match &decision.held_out {
        Some(held_out) => writeln!(out, "  held-out images: {}", fidelity(held_out))?,
        None => writeln!(
            out,
            "  held-out images: none, because there is only one image; the error on other images may be larger"
        )?,
    }
    if let Some(Reverted { error, layers, .. }) = &decision.reverted {
        writeln!(
            out,
            "  held-out images: {} before these layers were reverted to a higher precision: {}",
            percent(*error),
            super::escape::one_line(&layers.join(", "))
        )?;
    }
    if let Some(OnGpu { quantized, full, .. }) = &decision.on_gpu {
        writeln!(
            out,
            "  {} on the GPU: {}, relative to full precision on that GPU, whose error relative to f32 on the CPU is {}",
            match decision.held_out {
                Some(_) => "held-out images",
                None => "this image",
            },
            fidelity(quantized),
            percent(full.error)
        )?;
    }
    Ok(())
}

/// Warns if the error on the GPU exceeds the budget. The layers are chosen by the error on the CPU, so this can happen.
fn warn_beyond_budget(decision: &Decision) {
    let exceeds = |on_gpu: &&OnGpu| !on_gpu.quantized.within(decision.budget);
    if let Some(OnGpu { quantized, full, .. }) = decision.on_gpu.as_ref().filter(exceeds) {
        output::warning(&format!(
            "the model was written, but its error on {} is {}, which exceeds the budget of {}. The error of full precision on that \
             GPU, relative to f32 on the CPU, is {}. Use a smaller --budget",
            decision.measured_on,
            percent(quantized.error),
            percent(decision.budget),
            percent(full.error)
        ));
    }
}

fn fidelity(fidelity: &Fidelity) -> String {
    let images = fidelity.images;
    let agreeing = match fidelity.agreeing {
        Some(agreeing) => format!("{agreeing} of {images} images keep their top-1 class"),
        None => format!("{images} images"),
    };
    format!("{}, {agreeing}", percent(fidelity.error))
}

/// Formats a fraction as a percentage.
fn percent(fraction: f64) -> String {
    format!("{:.3} %", 100.0 * fraction)
}

/// Parses `amax`, `mse`, or a percentile such as `99.99%`.
fn parse_range(text: &str) -> std::result::Result<ActivationRange, String> {
    match (text, text.strip_suffix('%').map(str::parse)) {
        ("amax", _) => Ok(ActivationRange::Largest),
        ("mse", _) => Ok(ActivationRange::MeanSquare),
        (_, Some(Ok(percentile))) if percentile > 0.0 && percentile <= 100.0 => {
            Ok(ActivationRange::Percentile(percentile))
        }
        _ => Err("expected amax, mse, or a percentile above 0 and at most 100, such as 99.99%".into()),
    }
}

/// Parses a percentage or a fraction, such as `0.5%` or `0.005`.
fn parse_percent(text: &str) -> std::result::Result<f64, String> {
    let (number, unit) = match text.strip_suffix('%') {
        Some(number) => (number, 100.0),
        None => (text, 1.0),
    };
    match number.trim().parse::<f64>() {
        Ok(number) if number >= 0.0 && number.is_finite() => Ok(number / unit),
        _ => Err("expected a percentage, such as 0.5%".into()),
    }
}
