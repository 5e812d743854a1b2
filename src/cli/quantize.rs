//! `hipvit quantize`: a model in 8 bits.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::ValueEnum;
use hipvit::evaluate::LabelledSet;
use hipvit::hip::regular_file;
use hipvit::pipeline::Source;
use hipvit::quantize::{Decision, Options, Precision, Report, Scales, quantize};
use hipvit::table::{Column, Table};

use super::inputs::{DecodeArgs, images_below};
use super::{Outcome, Usage, output, record, refused};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Model directory, as timm or Hugging Face transformers write it, or a model of the Hugging Face hub that was downloaded:
    /// ORG/NAME or ORG/NAME@REVISION [default: the embedded TinyViT32]
    #[arg(value_name = "MODEL")]
    model: Option<PathBuf>,
    /// The directory to write, which must not exist or be empty
    #[arg(long, short, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    output: PathBuf,
    /// The type of the weights of the blocks' linear layers. int8: and of what they multiply, each token rounded by its own range;
    /// for the CPU. fp8 (E4M3): of the weights alone, which are dequantised when the model is loaded: a quarter of the file, the
    /// memory and speed of full precision. auto: int8 or f32 for each layer, as many in int8 as --budget allows, those first that
    /// save most time for their error
    #[arg(long, value_name = "DTYPE", default_value = "int8")]
    to: To,
    /// Balance channels of large activations with the weights that follow (SmoothQuant), by these images: files, directories,
    /// or a safetensors file as `eval` takes it
    #[arg(long, value_name = "IMAGES", num_args = 1..)]
    calibrate: Vec<PathBuf>,
    /// With auto, the largest error of the logits on these images: root mean square, as a part of the logits'
    #[arg(long, value_name = "PERCENT", default_value = "0.5%", value_parser = percent)]
    budget: f64,
    /// The scale of each output channel: by its largest weight, or by the least mean square error
    #[arg(long, value_name = "RULE", default_value = "amax")]
    scales: Rule,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    decode: DecodeArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum To {
    Int8,
    Fp8,
    Auto,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Rule {
    Amax,
    Mse,
}

impl Args {
    pub fn run(&self) -> Result<Outcome> {
        let precision = match self.to {
            To::Int8 => Precision::Int8,
            To::Auto if !self.calibrate.is_empty() => Precision::Int8,
            To::Auto => {
                return Err(Usage("--to auto measures errors on images: name some by --calibrate").into());
            }
            To::Fp8 if self.calibrate.is_empty() => Precision::Fp8,
            To::Fp8 => return Err(Usage("--calibrate: weights in fp8 need no images").into()),
        };
        let scales = match self.scales {
            Rule::Amax => Scales::Largest,
            Rule::Mse => Scales::MeanSquare,
        };
        let sources = self.sources()?;
        if sources.is_empty() && !self.calibrate.is_empty() {
            return Err(Usage("--calibrate: there is no image").into());
        }
        let decode = self.decode.options();
        let images = sources.iter().map(|source| source.decode(decode));
        let report = quantize(
            self.model.as_deref(),
            &self.output,
            Options {
                precision,
                scales,
                budget: matches!(self.to, To::Auto).then_some(self.budget),
            },
            images,
        )?;
        let mut out = output::stdout();
        match self.json {
            true => record::write(&mut out, &report)?,
            false => print(&mut out, &self.output, &report)?,
        }
        Ok(Outcome::Complete)
    }

    /// The images to calibrate with.
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

fn print(out: &mut impl Write, directory: &Path, report: &Report) -> Result<()> {
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
    writeln!(
        out,
        "{}: {quantized} weights in {}, {:.1} MiB of {:.1} MiB ({:+.1} %)",
        super::one_line(&directory.display().to_string()),
        precision.name(),
        mib(bytes_after),
        mib(bytes_before),
        100.0 * (bytes_after as f64 / bytes_before as f64 - 1.0),
    )?;
    match images {
        _ if precision == Precision::Fp8 => writeln!(
            out,
            "dequantised when the model is loaded: memory and speed are those of full precision"
        )?,
        0 => writeln!(
            out,
            "not calibrated: --calibrate IMAGES balances channels of large activations"
        )?,
        _ => writeln!(
            out,
            "calibrated with {images} images: {balanced} norms balanced with the layers that follow"
        )?,
    }
    if let Some(decision) = &report.decision {
        return print_decision(out, decision, images);
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

fn print_decision(out: &mut impl Write, decision: &Decision, images: usize) -> Result<()> {
    let columns = [
        Column::left("layers").wraps(20),
        Column::left("precision"),
        Column::right("error alone"),
        Column::right("f32").rank(1),
        Column::right("int8").rank(1),
    ];
    let mut table = Table::new(columns);
    let percent = |part: f64| format!("{:.3} %", 100.0 * part);
    for choice in &decision.choices {
        table.row([
            super::one_line(&choice.layers.join(", ")).to_string(),
            if choice.int8 { "int8" } else { "f32" }.to_owned(),
            percent(choice.error),
            format!("{:.0} µs", choice.f32_us),
            format!("{:.0} µs", choice.int8_us),
        ]);
    }
    writeln!(out, "{}", table.text(output::width()))?;
    writeln!(
        out,
        "error {} of a budget of {}, measured on these {images} images",
        percent(decision.error),
        percent(decision.budget)
    )?;
    if let Some(agreeing) = decision.agreeing {
        writeln!(out, "{agreeing} of {images} images keep their best class")?;
    }
    Ok(())
}

/// A part of one, from `0.5%` or `0.005`.
fn percent(text: &str) -> std::result::Result<f64, String> {
    let (number, unit) = match text.strip_suffix('%') {
        Some(number) => (number, 100.0),
        None => (text, 1.0),
    };
    match number.trim().parse::<f64>() {
        Ok(number) if number >= 0.0 && number.is_finite() => Ok(number / unit),
        _ => Err("expected a percentage, as 0.5%".into()),
    }
}
