//! Options of a session, shared by the command line, the benchmark, the server and the Python package.
//!
//! With the `clap` feature these structs are command-line arguments. The first line of a field's documentation is its help.

#[cfg(feature = "clap")]
pub mod parsers;
mod values;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::values::{ChannelValues, Devices, ImageSize, NamedExtent};
use crate::error::{Error, Result};
use crate::exec::GraphMode;
use crate::exec::select::{AllReduceKind, SelectOptions, Sparse};
use crate::model::ImageRule;
use crate::session::{DtypeChoice, Parallelism, ResizeOn, Session, SessionBuilder};
use crate::tensor::DType;

/// Options of a session: device, precision, batch size and execution.
///
/// ```
/// # fn main() -> hipvit::Result<()> {
/// use hipvit::{DType, RunConfig};
///
/// let config = RunConfig::default().with("dtype", "bf16")?.with("batch", 16)?;
/// assert_eq!(config.dtype, DType::BF16.into());
/// assert_eq!(config.builder().tinyvit32()?.batch(), 16);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default)]
pub struct RunConfig {
    /// Device or set of GPUs [default: auto]
    #[cfg_attr(feature = "clap", arg(long, value_name = "DEVICE", value_parser = parsers::devices(), help_heading = "Device"))]
    pub device: Option<Devices>,
    /// Compute precision
    #[serde(with = "values::text")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "DTYPE", default_value = "f32", value_parser = parsers::dtype_choice(), help_heading = "Device"))]
    pub dtype: DtypeChoice,
    /// Image or directory that --dtype auto measures on; repeatable
    ///
    /// The fastest dtype is used whose logits or embeddings have a cosine of at least 0.999 to those in f32, for each image.
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            value_name = "IMAGE|DIR",
            help_heading = "Device",
            hide_short_help = true
        )
    )]
    pub calibrate: Vec<PathBuf>,
    /// Maximum number of images per run
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", default_value_t = 8, value_parser = parsers::positive, help_heading = "Device"))]
    pub batch: usize,
    /// Options that are independent of device, precision and batch size.
    #[serde(flatten)]
    #[cfg_attr(feature = "clap", command(flatten))]
    pub execution: ExecutionConfig,
}

/// Options of ONNX models, whose files have no preprocessing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default)]
pub struct OnnxConfig {
    /// ONNX: mean of the channels [default: ImageNet's]
    ///
    /// For pixel values between 0 and 1. Replaces a configuration beside the file, as --std and --crop-pct do.
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "R,G,B", help_heading = "Model", hide_short_help = true)
    )]
    pub mean: Option<ChannelValues>,
    /// ONNX: standard deviation of the channels [default: ImageNet's]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "R,G,B", help_heading = "Model", hide_short_help = true)
    )]
    pub std: Option<ChannelValues>,
    /// ONNX: part of the shorter edge that the crop keeps [default: 0.875]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "PART", help_heading = "Model", hide_short_help = true)
    )]
    pub crop_pct: Option<f64>,
    /// ONNX: number of an extent that the file leaves open; repeatable
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "NAME=N", help_heading = "Model", hide_short_help = true)
    )]
    pub extent: Vec<NamedExtent>,
}

impl OnnxConfig {
    /// Returns `builder` with these options set.
    pub fn apply(&self, builder: SessionBuilder) -> SessionBuilder {
        let extents = self.extent.iter();
        let builder = extents.fold(builder, |builder, extent| {
            builder.extent(&extent.name, extent.number)
        });
        match self.image_rule() {
            Some(rule) => builder.image_rule(rule),
            None => builder,
        }
    }

    /// Returns the numbers of the extents that the file leaves open.
    pub fn extents(&self) -> BTreeMap<String, usize> {
        let extents = self.extent.iter();
        extents
            .map(|extent| (extent.name.clone(), extent.number))
            .collect()
    }

    /// Returns the preprocessing, if one of its options is given.
    pub fn image_rule(&self) -> Option<ImageRule> {
        let default = ImageRule::default();
        let is_given = self.mean.is_some() || self.std.is_some() || self.crop_pct.is_some();
        is_given.then(|| ImageRule {
            mean: self.mean.map_or(default.mean, |values| values.0),
            std: self.std.map_or(default.std, |values| values.0),
            crop_pct: self.crop_pct.unwrap_or(default.crop_pct),
            ..default
        })
    }
}

/// Options of a session other than the device, the precision and the batch size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default)]
pub struct ExecutionConfig {
    /// Image size [default: the model's]
    ///
    /// Position embeddings are interpolated to this size.
    #[cfg_attr(feature = "clap", arg(long, value_name = "N|HxW", help_heading = "Model"))]
    pub image_size: Option<ImageSize>,
    /// Pack images of any aspect ratio into sequences of N patches
    ///
    /// For timm's NaFlexViT and transformers' SigLIP 2 with NaFlex.
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", value_parser = parsers::positive, help_heading = "Model"))]
    pub packed: Option<usize>,
    /// Number of compute threads [default: all cores]
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", value_parser = parsers::positive, help_heading = "Device"))]
    pub threads: Option<usize>,
    /// Parallelism over several GPUs: data, tensor, pipeline
    ///
    /// data: each GPU has a replica of the model. tensor: each layer is split over the GPUs. pipeline: each GPU has some of the
    /// layers. Degrees combine kinds: tensor=2,data=2.
    #[cfg_attr(feature = "clap", arg(long, value_name = "KIND[=N],…", default_value = "data", value_parser = parsers::parallelism, help_heading = "Device"))]
    pub parallel: Parallelism,
    /// Where to resize and crop images
    ///
    /// The results are identical.
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            value_name = "WHERE",
            default_value_t,
            value_enum,
            help_heading = "Device"
        )
    )]
    pub resize: ResizeOn,
    /// Make results bit-identical at any batch size; slower
    #[cfg_attr(feature = "clap", arg(long, help_heading = "Advanced"))]
    pub reproducible: bool,
    /// Fail on NaN or infinite weights or results
    #[cfg_attr(feature = "clap", arg(long, help_heading = "Advanced"))]
    pub strict: bool,
    /// When to replay captured HIP graphs
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            value_name = "WHEN",
            default_value_t,
            value_enum,
            help_heading = "Advanced",
            hide_short_help = true
        )
    )]
    pub hip_graphs: GraphMode,
    /// When to use packed 2:4 sparse weights on a GPU
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            value_name = "WHEN",
            default_value_t,
            value_enum,
            help_heading = "Advanced",
            hide_short_help = true
        )
    )]
    pub sparse: Sparse,
    /// All-reduce implementation of tensor parallelism
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            value_name = "KIND",
            default_value_t,
            value_enum,
            help_heading = "Advanced",
            hide_short_help = true
        )
    )]
    pub all_reduce: AllReduceKind,
    /// Timeout of collectives between the GPUs of a model
    #[serde(with = "values::seconds")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "SECONDS", default_value = "300", value_parser = parsers::seconds, help_heading = "Advanced", hide_short_help = true))]
    pub collective_timeout: Duration,
    /// Reject models above N operations per image [default: 1e13]
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", value_parser = parsers::flops, help_heading = "Advanced", hide_short_help = true))]
    pub max_flops: Option<u64>,
    /// Options of ONNX models.
    #[serde(flatten)]
    #[cfg_attr(feature = "clap", command(flatten))]
    pub onnx: OnnxConfig,
}

impl Default for RunConfig {
    fn default() -> Self {
        Self {
            device: None,
            dtype: DType::F32.into(),
            calibrate: Vec::new(),
            batch: 8,
            execution: ExecutionConfig::default(),
        }
    }
}

impl Default for ExecutionConfig {
    fn default() -> Self {
        let select = SelectOptions::default();
        Self {
            image_size: None,
            packed: None,
            threads: None,
            parallel: Parallelism::default(),
            resize: ResizeOn::default(),
            reproducible: select.reproducible,
            strict: false,
            hip_graphs: GraphMode::default(),
            sparse: select.sparse,
            all_reduce: select.all_reduce,
            collective_timeout: select.collective_timeout,
            max_flops: None,
            onnx: OnnxConfig::default(),
        }
    }
}

impl RunConfig {
    /// Names of the options, as on the command line but with `_` in place of `-`.
    pub const OPTIONS: [&str; 20] = [
        "device",
        "dtype",
        "calibrate",
        "batch",
        "image_size",
        "packed",
        "threads",
        "parallel",
        "resize",
        "reproducible",
        "strict",
        "hip_graphs",
        "sparse",
        "all_reduce",
        "collective_timeout",
        "max_flops",
        "mean",
        "std",
        "crop_pct",
        "extent",
    ];

    /// Returns a copy with the option `name` set. Names are in [`OPTIONS`](Self::OPTIONS).
    ///
    /// # Errors
    ///
    /// Returns [`Error::Argument`] if the option does not exist or the value is invalid.
    pub fn with(&self, name: &str, value: impl Into<Value>) -> Result<Self> {
        let known = Self::OPTIONS.into_iter().find(|option| *option == name);
        let Some(option) = known else {
            let reason = format!("`{name}` is not one of {}", Self::OPTIONS.join(", "));
            return Err(Error::argument("option", reason));
        };
        let refused = |error: serde_json::Error| {
            let text = error.to_string();
            let reason = text.strip_prefix(option).and_then(|rest| rest.strip_prefix(": "));
            Error::argument(option, reason.unwrap_or(&text))
        };
        let mut options = serde_json::to_value(self).map_err(refused)?;
        options[option] = value.into();
        serde_json::from_value(options).map_err(refused)
    }

    /// Returns a session builder with these options.
    pub fn builder(&self) -> SessionBuilder {
        let builder = self
            .execution
            .apply(Session::builder())
            .dtype(self.dtype)
            .calibrate(&self.calibrate)
            .batch(self.batch);
        match &self.device {
            Some(devices) => builder.devices(devices.set().clone()),
            None => builder,
        }
    }

    /// Returns the options that can change a result's bits, with their names on the command line.
    pub fn numerics(&self) -> [(&'static str, String); 4] {
        let execution = &self.execution;
        let switch = |on: bool| if on { "on" } else { "off" }.to_owned();
        [
            ("--all-reduce", execution.all_reduce.to_string()),
            ("--sparse", execution.sparse.to_string()),
            ("--strict", switch(execution.strict)),
            ("--reproducible", switch(execution.reproducible)),
        ]
    }
}

impl From<&RunConfig> for SessionBuilder {
    fn from(config: &RunConfig) -> Self {
        config.builder()
    }
}

impl ExecutionConfig {
    /// Returns `builder` with these options set.
    pub fn apply(&self, builder: SessionBuilder) -> SessionBuilder {
        let mut builder = builder
            .parallel(self.parallel)
            .resize(self.resize)
            .reproducible(self.reproducible)
            .strict(self.strict)
            .hip_graphs(self.hip_graphs)
            .sparse(self.sparse)
            .all_reduce(self.all_reduce)
            .collective_timeout(self.collective_timeout);
        if let Some(threads) = self.threads {
            builder = builder.threads(threads);
        }
        if let Some(ImageSize(size)) = self.image_size {
            builder = builder.image_size(size);
        }
        if let Some(patches) = self.packed {
            builder = builder.packed(patches);
        }
        if let Some(flops) = self.max_flops {
            builder = builder.max_flops(flops);
        }
        self.onnx.apply(builder)
    }

    /// Returns the options that select kernels on a GPU.
    pub fn select(&self) -> SelectOptions {
        SelectOptions {
            reproducible: self.reproducible,
            sparse: self.sparse,
            all_reduce: self.all_reduce,
            collective_timeout: self.collective_timeout,
            ..SelectOptions::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_survive_as_json() {
        let config = RunConfig {
            device: Some("hip:0,1".parse().unwrap()),
            dtype: DtypeChoice::Auto,
            calibrate: vec!["a.png".into()],
            batch: 3,
            execution: ExecutionConfig {
                image_size: Some("224x160".parse().unwrap()),
                packed: Some(512),
                parallel: "tensor=2".parse().unwrap(),
                sparse: Sparse::Builtin,
                hip_graphs: GraphMode::Off,
                resize: ResizeOn::Device,
                all_reduce: AllReduceKind::Direct,
                collective_timeout: Duration::from_millis(1500),
                max_flops: Some(1 << 40),
                threads: Some(2),
                reproducible: true,
                strict: true,
                onnx: OnnxConfig {
                    mean: Some("0.5".parse().unwrap()),
                    std: Some("0.25,0.5,1".parse().unwrap()),
                    crop_pct: Some(0.9),
                    extent: vec!["height=224".parse().unwrap()],
                },
            },
        };
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(
            serde_json::from_str::<RunConfig>(&text).unwrap(),
            config,
            "{text}"
        );
        assert_eq!(
            serde_json::from_str::<RunConfig>("{}").unwrap(),
            RunConfig::default()
        );
        let value: Value = serde_json::from_str(&text).unwrap();
        let mut names: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
        let mut options = RunConfig::OPTIONS;
        names.sort_unstable();
        options.sort_unstable();
        assert_eq!(names, options);
    }

    #[test]
    fn options_are_set_by_name() {
        let config = RunConfig::default();
        let changed = config
            .with("sparse", "builtin")
            .unwrap()
            .with("threads", 2)
            .unwrap();
        assert_eq!(changed.execution.sparse, Sparse::Builtin);
        assert_eq!(changed.execution.threads, Some(2));
        let error = |name, value: Value| config.with(name, value).unwrap_err().to_string();
        assert_eq!(
            error("resize", "moon".into()),
            "resize: `moon` is not one of host, device"
        );
        assert!(
            error("moon", 1.into()).starts_with("option: `moon` is not one of device, dtype, calibrate, ")
        );
        assert!(error("batch", "many".into()).starts_with("batch: "));
    }
}
