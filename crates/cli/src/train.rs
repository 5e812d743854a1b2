//! `hipvit train` trains a model on labelled images, on pairs of images and captions, on images of texts, or on images with maps or boxes.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;
use hipvit::run_config::parsers;
use hipvit::{DType, Device};
use hipvit_data::Broken;
use hipvit_diagnostics::bench::DeviceInfo;
use hipvit_diagnostics::peaks::datasheet;
use hipvit_train::fit::{Callbacks, EpochEvent, Fit, FitOptions, LayerEvent, StepEvent, Summary};
use hipvit_train::recipe::{AugmentOn, Freeze, Overrides, QuantizationKind, Recipe, Shard};
use hipvit_train::start::{Origin, ReadyRun, RunOptions};
use hipvit_train::{MemoryLimit, Tuning};
use serde::Serialize;

use super::data_args::{DataArgs, with_option};
use super::errors::report;
use super::escape::one_line;
use super::interrupt::{self, Deferred};
use super::launcher::DistributedArgs;
use super::outcome::{Outcome, Usage};
use super::progress::Progress;
use super::train_ranks::TrainRanks;
use super::{output, record};

const EXAMPLES: &str = "\
Examples:
  hipvit train photos/ -m timm/vit_small_patch16_224.augreg_in21k -o run --recipe fine-tune --holdout 10%
  hipvit train digits/ -m assets/tinyvit32/config.json -o run --recipe digits
  hipvit train imagenet/ -m vit_small_patch16_224 -o run --device hip --dtype bf16
  hipvit train pairs.csv -m openai/clip-vit-base-patch32 -o run --holdout 5%
  hipvit train lines/ -m microsoft/trocr-base-printed -o run --holdout 5%
  hipvit train scenes/ -m depth-anything/Depth-Anything-V2-Metric-Indoor-Small-hf -o run
  hipvit train photos/ -o run --resume
  torchrun --nproc-per-node 2 --no-python hipvit train photos/ -m vit_tiny_patch16_224 -o run --device cpu
  hipvit classify photo.jpg -m run/model

docs/training.md describes the layouts of datasets and the keys of recipes.";

/// Number of frozen tensors that are named for each reason.
const NAMED_TENSORS: usize = 4;

#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    data: DataArgs,
    #[command(flatten)]
    model: StartArgs,
    #[command(flatten)]
    recipe: RecipeArgs,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    distributed: DistributedArgs,
    /// Output directory of the run, which must be empty or not exist
    ///
    /// It gets the recipe, the log, TensorBoard's events, report.html, the checkpoints, and the trained model in `model`.
    #[arg(long, short, value_name = "RUN", value_hint = clap::ValueHint::DirPath, help_heading = "Output")]
    output: PathBuf,
    /// Continue the run in RUN after its newest checkpoint
    #[arg(long, help_heading = "Output")]
    resume: bool,
    /// Steps between lines of the log
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = parsers::positive, help_heading = "Output", hide_short_help = true)]
    log_every: usize,
    /// Print one JSON object
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// Model that training starts from.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Model")]
struct StartArgs {
    /// Model to fine-tune, or config.json or timm architecture without weights
    ///
    /// A directory with weights or a name on the hub is fine-tuned; its classifier is replaced unless the classes are the
    /// same. A config.json, or the name of a timm architecture, gets random weights.
    #[arg(
        long,
        short,
        value_name = "MODEL",
        required_unless_present = "resume",
        conflicts_with = "resume"
    )]
    model: Option<PathBuf>,
    /// Image size of a timm architecture without weights
    #[arg(long, value_name = "PIXELS", value_parser = parsers::positive, conflicts_with = "resume")]
    image_size: Option<usize>,
}

/// Recipe, and options that override its keys.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Recipe")]
struct RecipeArgs {
    /// TOML file, scratch-small, digits, fine-tune, pairs, texts or maps
    ///
    /// The default is scratch-small, pairs for pairs of images and captions, texts for a model that makes texts, or maps for one that predicts maps or boxes.
    #[arg(long, value_name = "RECIPE", conflicts_with = "resume")]
    recipe: Option<PathBuf>,
    /// Number of passes over the images
    #[arg(long, value_name = "N", value_parser = parsers::positive, conflicts_with = "resume")]
    epochs: Option<usize>,
    /// Images per step
    #[arg(long, value_name = "N", value_parser = parsers::positive, conflicts_with = "resume")]
    batch: Option<usize>,
    /// Micro-batches per step, to need less memory; 0 chooses for --memory
    #[arg(long, value_name = "N", conflicts_with = "resume")]
    accumulate: Option<usize>,
    /// Highest learning rate
    #[arg(long, value_name = "RATE", conflicts_with = "resume")]
    lr: Option<f64>,
    /// Layers to keep as they are, from the embedding on, or backbone
    ///
    /// The embedding is the first layer, and each block is one. backbone: all but the head. In training on pairs: image or text, the tower. In training on texts: image
    /// or text, the encoder or the decoder.
    #[arg(long, value_name = "LAYERS", conflicts_with = "resume")]
    freeze: Option<Freeze>,
    /// Train updates of this rank beside the linear layers
    ///
    /// LoRA: the weights of the model stay as they are, except for the head. RUN gets an adapter for peft, and the merged model.
    #[arg(long, value_name = "RANK", value_parser = parsers::positive, conflicts_with = "resume")]
    lora: Option<usize>,
    /// What ranks divide: none, optimizer, gradients, parameters
    ///
    /// With several processes, each rank keeps and updates a part of the states of the optimiser, also of the sums of gradients, and also of
    /// the weights.
    #[arg(
        long,
        value_name = "STATES",
        conflicts_with = "resume",
        hide_short_help = true
    )]
    shard: Option<Shard>,
    /// Where training images are augmented: auto, host, device
    ///
    /// device: the GPU of the steps resizes and changes the images that the host decodes. The images are the same.
    #[arg(long, value_name = "WHERE", conflicts_with = "resume", hide_short_help = true)]
    augment_on: Option<AugmentOn>,
    /// Model with the same classes to learn from
    ///
    /// Distillation as for DeiT: a directory or a name on the hub. The recipe's section [distillation] has its other keys.
    #[arg(long, value_name = "MODEL", conflicts_with = "resume")]
    teacher: Option<String>,
    /// Round linear layers as in int8, for hipvit quantize
    ///
    /// Quantisation-aware training: the epochs' accuracies are those of the model in int8, which hipvit quantize writes from RUN/model.
    #[arg(long, conflicts_with = "resume")]
    qat: bool,
    /// Seed of weights, order and augmentation
    #[arg(long, value_name = "SEED", conflicts_with = "resume")]
    seed: Option<u64>,
}

/// Precision of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Precision {
    /// Also called float32
    #[value(aliases = ["float32", "fp32", "float"])]
    F32,
    /// Also called float16; with a factor of the loss
    #[value(aliases = ["float16", "fp16", "half"])]
    F16,
    /// Also called bfloat16
    #[value(alias = "bfloat16")]
    Bf16,
    /// bf16, with linear layers rounded to FP8
    #[value(alias = "float8")]
    Fp8,
}

impl Precision {
    /// Returns the dtype of activations.
    fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::F16 => DType::F16,
            Self::Bf16 | Self::Fp8 => DType::BF16,
        }
    }
}

/// Device of the run.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Device")]
struct DeviceArgs {
    /// Device to train on
    #[arg(long, value_name = "DEVICE", default_value = "auto", value_parser = parsers::device())]
    device: Device,
    /// Precision of activations and gradients
    ///
    /// fp8: linear layers of the blocks in FP8 (E4M3, gradients in E5M2), all else in bf16.
    #[arg(long, value_name = "DTYPE", default_value = "f32")]
    dtype: Precision,
    /// Memory limit: bytes (8G) or a share of the GPU's (0.5)
    ///
    /// The backward pass recomputes activations that do not fit, the cheapest first. Overrides the recipe's key; a resumed run
    /// may have another limit.
    #[arg(long, value_name = "LIMIT")]
    memory: Option<MemoryLimit>,
    /// Measure first which kernels are fastest, and keep the choices
    ///
    /// Takes some seconds on a GPU. Later runs use the choices. Runs with other choices may differ by rounding.
    #[arg(long)]
    tune: bool,
    /// Threads that compute on the CPU [default: one per core]
    #[arg(long, value_name = "N", value_parser = parsers::positive)]
    threads: Option<usize>,
}

/// Returns the speed at which steps would reach the peak of the device's datasheet. `None` for a device without one.
fn peak_images_per_second(
    fit: &Fit,
    device: &DeviceInfo,
    recipe: &Recipe,
    dtype: DType,
) -> Result<Option<f64>> {
    // The datasheet of an emulated product does not describe the emulator.
    let sheet = datasheet(&device.name).filter(|_| device.kind != "emulated");
    let Some(tflops) = sheet.and_then(|sheet| sheet.tflops(dtype)) else {
        return Ok(None);
    };
    let flops = fit.trainer().flops(recipe.batch)? as f64 / recipe.batch as f64;
    Ok(Some(1e12 * tflops / flops))
}

/// Result of a run, for `--json`.
#[derive(Serialize)]
struct Report<'a> {
    model: &'a Path,
    steps: u64,
    epochs: u64,
    skipped: u64,
    last_epoch: Option<EpochEvent>,
}

impl Args {
    pub(crate) fn run(&self) -> Result<Outcome> {
        match self.distributed.train_ranks()? {
            Some(ranks) => ranks.end(self.train(Some(&ranks))),
            None => self.train(None),
        }
    }

    fn train(&self, ranks: Option<&TrainRanks>) -> Result<Outcome> {
        let device = match ranks {
            Some(ranks) => ranks.device(self.device.device)?,
            None => self.device.device,
        };
        let info = DeviceInfo::open(device)?;
        let options = FitOptions {
            device,
            dtype: self.device.dtype.dtype(),
            threads: ranks.map_or(self.device.threads, |ranks| ranks.threads(self.device.threads)),
            skip_broken: self.data.skip_broken,
            log_every: self.log_every as u64,
            device_name: info.title(),
            collectives: ranks.map(TrainRanks::collectives),
        };
        let ReadyRun {
            mut fit,
            replaced,
            model,
        } = self.options()?.ready(options).map_err(with_option)?;
        if self.device.tune {
            let tuning;
            (fit, tuning) = fit.tuned().map_err(with_option)?;
            note_tuning(&tuning);
        }
        let recipe = fit.recipe().clone();
        if self.device.dtype == Precision::Fp8 && recipe.quantization.kind != QuantizationKind::Fp8 {
            let reason = "--dtype fp8: the run was started without FP8. Resume it with its dtype";
            return Err(Usage(reason).into());
        }
        if !replaced.is_empty() {
            let tensors = replaced.join(", ");
            let classes = fit.trainer().classes();
            output::note(&format!(
                "the classifier is new, for {classes} classes: {tensors}"
            ));
        }
        note_start(&fit, self.resume);
        let peak = peak_images_per_second(&fit, &info, &recipe, self.device.dtype.dtype())?;
        let prints = ranks.is_none_or(TrainRanks::prints);
        let mut display = Display::new(&fit, &recipe, self.json || !prints, peak);
        let summary = fit.run(&mut display)?;
        if let Some(ranks) = ranks {
            ranks.wait()?;
        }
        let Display { progress, signal, .. } = display;
        drop(progress);
        if !summary.is_complete {
            if prints {
                let step = summary.progress.step;
                output::say(&format!("interrupted after step {step}: continue with --resume"));
            }
            signal.end();
        }
        if prints {
            self.print(&model, &summary)?;
        }
        Ok(Outcome::of(summary.progress.skipped as usize))
    }

    fn options(&self) -> Result<RunOptions> {
        let origin = match &self.model.model {
            Some(model) => Origin::New {
                model: model.clone(),
                image_size: self.model.image_size,
                recipe: self.recipe.recipe.clone(),
                overrides: self.recipe.overrides(self.device.dtype)?,
            },
            None => Origin::Checkpoint,
        };
        Ok(RunOptions {
            data: self.data.data.clone(),
            holdout: self.data.holdout,
            output: self.output.clone(),
            memory: self.device.memory,
            origin,
        })
    }

    fn print(&self, model: &Path, summary: &Summary) -> Result<()> {
        let mut out = output::stdout();
        let progress = &summary.progress;
        if self.json {
            let report = Report {
                model,
                steps: progress.step,
                epochs: progress.epoch,
                skipped: progress.skipped,
                last_epoch: summary.last,
            };
            return record::write(&mut out, &report);
        }
        let path = model.display().to_string();
        writeln!(
            out,
            "{}: trained for {} epochs, {} steps",
            one_line(&path),
            progress.epoch,
            progress.step
        )?;
        Ok(())
    }
}

impl RecipeArgs {
    /// Returns the keys of the recipe that the options override.
    fn overrides(&self, dtype: Precision) -> Result<Overrides> {
        let mut overrides = Overrides::default();
        overrides.set("epochs", self.epochs)?;
        overrides.set("batch", self.batch)?;
        overrides.set("accumulate", self.accumulate)?;
        overrides.set("optimizer.lr", self.lr)?;
        overrides.set("freeze", self.freeze)?;
        overrides.set("lora.rank", self.lora)?;
        overrides.set("ranks.shard", self.shard)?;
        overrides.set("augmentation.on", self.augment_on)?;
        overrides.set("distillation.teacher", self.teacher.as_ref())?;
        overrides.set("seed", self.seed)?;
        let kind = match dtype {
            Precision::Fp8 if self.qat => {
                return Err(
                    Usage("--qat rounds to int8, --dtype fp8 to FP8: leave out one of the two").into(),
                );
            }
            Precision::Fp8 => Some(QuantizationKind::Fp8),
            _ => self.qat.then_some(QuantizationKind::Int8),
        };
        overrides.set("quantization.kind", kind)?;
        Ok(overrides)
    }
}

fn note_tuning(Tuning { problems, gain, path }: &Tuning) {
    let (ms, path) = (gain.as_secs_f64() * 1e3, path.display());
    output::note(&format!(
        "measured {problems} problems, which saves {ms:.2} ms of a step; kept in {path}"
    ));
}

/// Prints what is trained, and what is not.
fn note_start(fit: &Fit, resumed: bool) {
    let trainer = fit.trainer();
    let from = if resumed {
        format!(", continuing after step {}", fit.progress().step)
    } else {
        String::new()
    };
    output::note(&format!(
        "training {} parameters in {} steps of {} per epoch{from}",
        trainer.parameters(),
        fit.steps(),
        fit.steps_per_epoch()
    ));
    if fit.augments_on_device() {
        output::note("the GPU resizes and changes the training images");
    }
    if let Some([truncated, tokens]) = fit.truncated_captions() {
        output::note(&format!("texts have {tokens} tokens"));
        if truncated > 0 {
            output::warning(&format!(
                "{truncated} captions are longer than the model's context, which truncates them"
            ));
        }
    }
    if let Some([longest, generated]) = fit.text_lengths() {
        output::note(&format!("texts have up to {longest} tokens"));
        if longest > generated {
            output::warning(&format!(
                "the model's files limit generation to {generated} tokens, so that longer texts are read in part. Set max_length in \
                 generation_config.json"
            ));
        }
    }
    if let Some(memory) = trainer.memory() {
        let of = if fit.has_ranks() {
            "memory of each rank"
        } else {
            "memory"
        };
        output::note(&format!("{of}: {}", memory.summary()));
    }
    if let Ok(Some([sent, whole])) = trainer.compressed_bytes() {
        let [sent, whole] = [sent, whole].map(|bytes| bytes as f64 / 1e6);
        output::note(&format!(
            "gradients of each rank: {sent:.2} MB per step, compressed from {whole:.2} MB"
        ));
    }
    let mut by_reason = BTreeMap::<_, Vec<&str>>::new();
    for frozen in trainer.frozen() {
        by_reason.entry(frozen.reason).or_default().push(&frozen.tensor);
    }
    for (reason, tensors) in by_reason {
        let shown = tensors[..tensors.len().min(NAMED_TENSORS)].join(", ");
        let rest = match tensors.len().saturating_sub(NAMED_TENSORS) {
            0 => String::new(),
            rest => format!(" and {rest} more"),
        };
        output::note(&format!("not trained, because {reason}: {shown}{rest}"));
    }
}

/// Shows the progress of a run.
struct Display {
    progress: Progress,
    signal: Deferred,
    epochs: u64,
    json: bool,
    /// Images per second at the peak of the device, if it is known.
    peak: Option<f64>,
}

impl Display {
    fn new(fit: &Fit, recipe: &Recipe, json: bool, peak: Option<f64>) -> Self {
        let progress = Progress::counting(fit.steps() as usize, "steps");
        progress.skip(fit.progress().step);
        Self {
            progress,
            signal: interrupt::defer("finishing this step, then writing a checkpoint"),
            epochs: recipe.epochs,
            json,
            peak,
        }
    }
}

impl Callbacks for Display {
    fn on_step(&mut self, event: &StepEvent) {
        let StepEvent {
            epoch,
            loss,
            images_per_second,
            ..
        } = event;
        let mfu = self.peak.map_or_else(String::new, |peak| {
            format!(", MFU {:.1} %", 100.0 * images_per_second / peak)
        });
        self.progress.step();
        self.progress.message(&format!(
            "epoch {epoch}/{}, loss {loss:.4}, {images_per_second:.0} images/s{mfu}",
            self.epochs
        ));
    }

    fn on_epoch(&mut self, event: &EpochEvent) {
        if self.json {
            return;
        }
        let percent = |share: f64| format!("{:.2} %", 100.0 * share);
        if let Some(reading) = &event.reading {
            let unaveraged = event.unaveraged_reading.map_or_else(String::new, |reading| {
                format!(" ({} without averages)", percent(reading.exact_lines))
            });
            let line = format!(
                "epoch {}/{}: loss {:.4}, training {} of tokens, validation {} of lines exact{unaveraged}, character error rate {}",
                event.epoch,
                self.epochs,
                event.loss,
                percent(event.train_accuracy.unwrap_or_default()),
                percent(reading.exact_lines),
                percent(reading.character_error_rate)
            );
            let _ = self.progress.print(|| writeln!(output::stdout(), "{line}"));
            return;
        }
        let validation = match (&event.recall, event.val_accuracy) {
            _ if event.figures.is_some() => event
                .figures
                .map_or_else(String::new, |figures| format!(", validation {figures}")),
            (Some(recall), _) => format!(
                ", recall@1 and @5 image to text {} and {}, text to image {} and {}",
                percent(recall.image_to_text_1),
                percent(recall.image_to_text_5),
                percent(recall.text_to_image_1),
                percent(recall.text_to_image_5)
            ),
            (None, Some(accuracy)) => format!(", validation {}", percent(accuracy)),
            (None, None) => String::new(),
        };
        let training = event
            .train_accuracy
            .map_or_else(String::new, |share| format!(", training {}", percent(share)));
        let unaveraged = match event.unaveraged_val_accuracy {
            Some(accuracy) => format!(" ({} without averages)", percent(accuracy)),
            None => String::new(),
        };
        let line = format!(
            "epoch {}/{}: loss {:.4}{training}{validation}{unaveraged}",
            event.epoch, self.epochs, event.loss
        );
        // The run goes on if standard output is closed.
        let _ = self.progress.print(|| writeln!(output::stdout(), "{line}"));
    }

    fn on_skipped_step(&mut self, step: u64, cause: &str) {
        self.progress.step();
        self.progress
            .report(|| report(anyhow::anyhow!("step {step} is left out: {cause}")));
    }

    fn on_smaller_micro_batches(&mut self, step: u64, images: usize) {
        self.progress.report(|| {
            output::note(&format!(
                "step {step}: the device ran out of memory. From here on, steps have micro-batches of {images} images"
            ));
        });
    }

    fn on_layer(&mut self, event: &LayerEvent) {
        self.progress.report(|| output::note(&event.to_string()));
    }

    fn on_broken(&mut self, broken: &Broken) {
        self.progress
            .report(|| report(anyhow::anyhow!("{}", broken.error)));
    }

    fn must_stop(&self) -> bool {
        self.signal.is_set()
    }
}
