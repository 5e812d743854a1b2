//! `hipvit quantize`: writes a model with 8-bit, bf16 or 2:4 sparse weights.

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

use super::inputs::{DecodeArgs, images_below};
use super::{NamedModel, Outcome, Usage, output, record, refused};

const EXAMPLES: &str = "\
Examples:
  hipvit quantize MODEL -o model-int8 --calibrate photos/
  hipvit quantize MODEL -o model-fp8 --to fp8 --calibrate photos/
  hipvit quantize MODEL -o model-auto --to auto --calibrate photos/ --budget 0.5%
  hipvit quantize MODEL -o model-24 --sparse 2:4 --calibrate photos/

docs/precision.md describes what each device computes at each precision.";

#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// Images for calibration, or a safetensors file
    ///
    /// With int8, large activations are balanced with the following weights (SmoothQuant). With --sparse, the pruning
    /// error is compensated.
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
    to: Option<To>,
    /// Prune two of every four weights
    ///
    /// Prunes by magnitude, or with --calibrate by the least error of the layers' outputs (SparseGPT). Without --to,
    /// the weights keep their precision.
    #[arg(long, value_name = "PATTERN")]
    sparse: Option<Sparse>,
    /// Maximum error of the logits, for --to auto
    ///
    /// The root mean square error relative to the logits. It must also hold on a held-out fifth of the images.
    #[arg(long, value_name = "PERCENT", default_value = "0.5%", value_parser = parse_percent)]
    budget: f64,
    /// Rule for the scale of each output channel
    #[arg(long, value_name = "RULE", default_value = "amax", hide_short_help = true)]
    scales: Rule,
    /// Largest activation in FP8: amax, mse or a percentile
    ///
    /// amax: the largest magnitude on the images. mse: the magnitude with the least mean square error. 99.99%: a percentile of
    /// the magnitudes. Larger activations are clipped.
    #[arg(long, value_name = "RULE", default_value = "amax", value_parser = parse_range, hide_short_help = true)]
    activation_range: ActivationRange,
}

/// The device on which --to auto measures times.
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
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = super::positive)]
    batch: usize,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum To {
    /// Int8 weights; activations quantised per token
    Int8,
    /// FP8 (E4M3) weights; with --calibrate also activations
    Fp8,
    /// FP8 weights and activations, scaled per token
    Fp8Dynamic,
    /// Bf16 weights; on the CPU also activations
    Bf16,
    /// Precision chosen per layer, within --budget
    Auto,
    /// Unchanged precision, for --sparse
    Full,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Sparse {
    /// Two of every four weights along the input channels
    #[value(name = "2:4")]
    TwoOfFour,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Rule {
    /// Scale to the largest weight
    Amax,
    /// Scale with the least mean square error
    Mse,
}

impl Args {
    pub fn run(&self) -> Result<Outcome> {
        let to = match (self.precision.to, self.precision.sparse) {
            (Some(To::Full), None) => {
                return Err(Usage("--to full has no effect without --sparse").into());
            }
            (Some(to), _) => to,
            (None, None) => To::Int8,
            (None, Some(_)) => To::Full,
        };
        let precision = match to {
            To::Full => Precision::Full,
            To::Int8 => Precision::Int8,
            To::Auto if !self.calibrate.is_empty() => Precision::Int8,
            To::Auto => {
                return Err(Usage("--to auto measures errors on images: add --calibrate IMAGES").into());
            }
            To::Fp8 => Precision::Fp8,
            To::Fp8Dynamic if !self.calibrate.is_empty() && self.precision.sparse.is_none() => {
                return Err(
                    Usage("--to fp8-dynamic scales each token at run time: leave out --calibrate").into(),
                );
            }
            To::Fp8Dynamic => Precision::Fp8Dynamic,
            To::Bf16 if !self.calibrate.is_empty() && self.precision.sparse.is_none() => {
                return Err(Usage("--to bf16 has no scales to calibrate: leave out --calibrate").into());
            }
            To::Bf16 => Precision::Bf16,
        };
        if precision == Precision::Fp8
            && !self.calibrate.is_empty()
            && matches!(self.precision.scales, Rule::Mse)
        {
            let reason = "--scales mse needs a scale per output channel, but with --to fp8 --calibrate a weight has one scale";
            return Err(Usage(reason).into());
        }
        let in_fp8_by_images = match to {
            To::Fp8 => !self.calibrate.is_empty(),
            To::Auto => self.target.device != Device::Cpu,
            _ => false,
        };
        if self.precision.activation_range != ActivationRange::Largest && !in_fp8_by_images {
            let reason = "--activation-range needs calibrated fp8 activations: use --to fp8 with --calibrate, or --to auto on a GPU";
            return Err(Usage(reason).into());
        }
        let scales = match self.precision.scales {
            Rule::Amax => Scales::Largest,
            Rule::Mse => Scales::MeanSquare,
        };
        let sources = self.sources()?;
        if sources.is_empty() && !self.calibrate.is_empty() {
            return Err(Usage("--calibrate: no images found").into());
        }
        let decode = self.decode.options();
        let images = sources.iter().map(|source| source.decode(decode));
        let report = quantize(
            self.model.path().map(PathBuf::as_path),
            &self.output,
            Options {
                precision,
                scales,
                budget: matches!(to, To::Auto).then_some(self.precision.budget),
                activation_range: self.precision.activation_range,
                target: self.target(to)?,
                sparsity: self.precision.sparse.map(|Sparse::TwoOfFour| Sparsity::TwoOfFour),
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

    /// Returns the GPU that the model is quantised for.
    fn target(&self, to: To) -> Result<Option<GpuTarget>> {
        if !matches!(to, To::Auto) {
            return match (self.target.device, self.target.dtype) {
                (Device::Cpu, None) => Ok(None),
                _ => Err(Usage("--device and --dtype need --to auto, which measures times").into()),
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

    /// Returns the images for calibration.
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
        Precision::Full => "weights as they are".to_owned(),
        _ => match &report.decision {
            Some(decision) => weights_by_precision(decision),
            None if precision == Precision::Fp8Dynamic => format!("{quantized} weights in fp8"),
            None => format!("{quantized} weights in {}", precision.name()),
        },
    };
    writeln!(
        out,
        "{}: {what}, {:.1} MiB of {:.1} MiB ({:+.1} %)",
        super::one_line(&directory.display().to_string()),
        mib(bytes_after),
        mib(bytes_before),
        100.0 * (bytes_after as f64 / bytes_before as f64 - 1.0),
    )?;
    if let Some(sparsity) = &report.sparsity {
        writeln!(out, "{sparsity}")?;
        match images {
            0 => writeln!(
                out,
                "pruned by magnitude; --calibrate IMAGES would compensate the error in the other weights"
            )?,
            _ => writeln!(out, "pruned by SparseGPT with {images} images")?,
        }
    }
    if !report.unpruned.is_empty() {
        let layers = report.unpruned.join(", ");
        writeln!(
            out,
            "not pruned, because the number of input channels is not a multiple of four: {}",
            super::one_line(&layers)
        )?;
    }
    match images {
        _ if precision == Precision::Full => {}
        _ if precision == Precision::Bf16 => writeln!(
            out,
            "activations in bf16 on the CPU; GPUs compute these layers in --dtype"
        )?,
        0 if precision == Precision::Fp8 => writeln!(
            out,
            "dequantised at load time, so as slow as full precision; --calibrate IMAGES or --to fp8-dynamic also quantises activations"
        )?,
        _ if precision == Precision::Fp8Dynamic => writeln!(
            out,
            "activations in fp8, each token scaled at run time by its largest magnitude"
        )?,
        _ if precision == Precision::Fp8 => {
            let rule = match range {
                ActivationRange::Percentile(percentile) => {
                    format!("up to {percentile} % of their magnitudes")
                }
                ActivationRange::MeanSquare => "by the least mean square error".to_owned(),
                _ => "by their largest magnitudes".to_owned(),
            };
            writeln!(out, "activations in fp8, {rule} on {images} images")?;
        }
        0 => writeln!(
            out,
            "not calibrated; --calibrate IMAGES would balance channels with large activations"
        )?,
        _ => writeln!(
            out,
            "calibrated with {images} images: {balanced} norms balanced with the following layers"
        )?,
    }
    if let Some(decision) = &report.decision {
        return print_decision(out, decision);
    }
    if !report.unquantized.is_empty() {
        writeln!(
            out,
            "not quantised: {}",
            super::one_line(&report.unquantized.join(", "))
        )?;
    }
    Ok(())
}

/// Returns a summary such as `20 weights in int8, 12 in bf16`.
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
        Some(choice) => choice.candidates.iter().map(|of| of.precision.name()).collect(),
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
            super::one_line(&choice.layers.join(", ")).to_string(),
            choice.precision.name().to_owned(),
            time(choice.full_us),
        ];
        let mut taken = choice.full_us;
        for of in &choice.candidates {
            row.extend([percent(of.error), time(of.us)]);
            if of.precision == choice.precision {
                taken = of.us;
            }
        }
        before += choice.full_us;
        after += taken;
        table.row(row);
    }
    writeln!(out, "{}", table.text(output::width()))?;
    writeln!(
        out,
        "these layers: {} in full precision, {} as chosen, on {}",
        time(before),
        time(after),
        super::one_line(&decision.measured_on)
    )?;
    writeln!(
        out,
        "error, of a budget of {}:\n  calibration images: {}",
        percent(decision.budget),
        fidelity(&decision.calibration)
    )?;
    match &decision.held_out {
        Some(held_out) => writeln!(out, "  held-out images: {}", fidelity(held_out))?,
        None => writeln!(
            out,
            "  held-out images: none, because there is only one image; the error on others may be larger"
        )?,
    }
    if let Some(Reverted { error, layers, .. }) = &decision.reverted {
        writeln!(
            out,
            "  held-out images: {} before these layers were reverted: {}",
            percent(*error),
            super::one_line(&layers.join(", "))
        )?;
    }
    if let Some(OnGpu { quantized, full, .. }) = &decision.on_gpu {
        writeln!(
            out,
            "  {} on the GPU: {}, relative to full precision there (itself {} from f32 on the CPU)",
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

/// Warns if the GPU's error can exceed the budget. The budget bounds the errors that the CPU computes.
fn warn_beyond_budget(decision: &Decision) {
    let beyond = |of: &&OnGpu| !of.quantized.within(decision.budget);
    if let Some(OnGpu { quantized, full, .. }) = decision.on_gpu.as_ref().filter(beyond) {
        output::warning(&format!(
            "the error on {} is {}, which exceeds the budget of {} (full precision there: {} from f32 on the CPU); the model was \
             written nevertheless",
            decision.measured_on,
            percent(quantized.error),
            percent(decision.budget),
            percent(full.error)
        ));
    }
}

fn fidelity(of: &Fidelity) -> String {
    let images = of.images;
    let agreeing = match of.agreeing {
        Some(agreeing) => format!("{agreeing} of {images} keep their top-1 class"),
        None => format!("{images} images"),
    };
    format!("{}, {agreeing}", percent(of.error))
}

fn percent(part: f64) -> String {
    format!("{:.3} %", 100.0 * part)
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

/// Parses a fraction, such as `0.5%` or `0.005`.
fn parse_percent(text: &str) -> std::result::Result<f64, String> {
    let (number, unit) = match text.strip_suffix('%') {
        Some(number) => (number, 100.0),
        None => (text, 1.0),
    };
    match number.trim().parse::<f64>() {
        Ok(number) if number >= 0.0 && number.is_finite() => Ok(number / unit),
        _ => Err("expected a percentage, as 0.5%".into()),
    }
}
