//! Models of transformers that estimate depth: Depth Anything, and DPT with a ViT or DINOv2 as encoder.

use serde_json::Value;

use super::keys::{activation, check_layers};
use super::kind::{Class, DINOV2, DPT, Kind};
use super::trunk::{MASK_TOKEN, check_channels, trunk};
use crate::error::Result;
use crate::labels::Labels;
use crate::model::depth::{DepthHead, Form, Readout, Scale};
use crate::model::description::Description;
use crate::model::fields::Fields;
use crate::model::info::Library;
use crate::model::vit::Vit;
use crate::ops::Activation;

/// Maximum number of channels of a map. It keeps a wrong configuration from requesting terabytes: the channels of two maps are the extents of a weight.
const MOST_CHANNELS: usize = 1 << 11;
/// Maximum factor between the grid of patches and a map, which is also the side of a kernel.
const MOST_SCALE: usize = 8;

const DEPTH_ANYTHING: &str = "depth_anything";
const UNUSED: [(&str, &str); 5] = [
    MASK_TOKEN,
    (
        "neck.fusion_stage.layers.0.residual_layer1.*",
        "the first fused map has no map before it",
    ),
    ("dpt.layernorm.*", "the neck reads the tokens before this norm"),
    (
        "backbone.layernorm.*",
        "the neck reads the tokens before this norm",
    ),
    ("dpt.pooler.*", "the neck reads the tokens"),
];

/// A model that estimates depth, with its configuration.
#[derive(Clone, Copy)]
pub(super) struct Estimator<'a> {
    config: Fields<'a>,
    class: &'static str,
    /// Configuration of the encoder, with its family.
    encoder: (Fields<'a>, &'static Kind),
}

/// Returns the model if the configuration is of a type that estimates depth. `None` for other types.
///
/// # Errors
///
/// [`Error::Config`](crate::Error::Config) for a class or an encoder that is not supported.
pub(super) fn estimator(config: Fields<'_>) -> Result<Option<Estimator<'_>>> {
    let (is_dpt, class) = match config.text("model_type")? {
        Some(DEPTH_ANYTHING) => (false, "DepthAnythingForDepthEstimation"),
        Some("dpt") => (true, "DPTForDepthEstimation"),
        _ => return Ok(None),
    };
    let named = config.get("architectures").and_then(|list| list.get(0));
    if named.and_then(Value::as_str) != Some(class) {
        let reason = format_args!("is not \"{class}\", the class that is supported");
        return Err(config.error("architectures", reason));
    }
    for (key, what) in [
        ("is_hybrid", "an encoder that begins with convolutions"),
        ("use_timm_backbone", "an encoder of timm"),
        ("use_batch_norm_in_fusion_residual", "batch norm"),
    ] {
        if config.accepting_null().flag(key)? == Some(true) {
            return Err(config.error(key, format_args!("is true: {what} is not supported")));
        }
    }
    if let Some(backbone) = config.get("backbone") {
        return Err(config.unexpected(
            "backbone",
            backbone,
            "null: the encoder's configuration is `backbone_config`",
        ));
    }
    let encoder = match config.object("backbone_config")? {
        Some(encoder) => {
            match encoder.text("model_type")? {
                Some("dinov2") => {}
                None if !is_dpt => {}
                other => {
                    let named = other.unwrap_or("missing");
                    let reason = format_args!(
                        "is {named}; the encoders that are supported are dinov2 and, for DPT without a `backbone_config`, its own ViT"
                    );
                    return Err(encoder.error("model_type", reason));
                }
            }
            (encoder.refusing_null(), &DINOV2)
        }
        None if is_dpt => (config.refusing_null(), &DPT),
        None => return Err(config.error("backbone_config", "is missing")),
    };
    Ok(Some(Estimator {
        config: config.refusing_null(),
        class,
        encoder,
    }))
}

impl Estimator<'_> {
    /// Describes the model for images of the size `image`.
    pub(super) fn describe(self, image: [usize; 2]) -> Result<Description> {
        let (encoder, kind) = self.encoder;
        check_layers(self.config)?;
        check_layers(encoder)?;
        check_channels(encoder)?;
        let mut vit = trunk(kind, Class::Model, encoder, image)?;
        // The neck applies it to each of the tokens that it reads.
        vit.norm = false;
        let head = self.head(&vit)?;
        let own_vit = kind.model_type == DPT.model_type;
        if own_vit && image[0] / vit.patch[0] != image[1] / vit.patch[1] {
            let reason = format_args!(
                "is {}: the library arranges tokens of DPT's own encoder as a square, but images of {}×{} have other patches",
                kind.model_type, image[0], image[1]
            );
            return Err(self.config.error("model_type", reason));
        }
        Ok(Description {
            library: Library::Transformers,
            family: kind.family,
            architecture: self.class.to_owned(),
            vit,
            depth: Some(head),
            text: None,
            names: kind.names,
            prefixes: if own_vit { DPT.prefixes } else { &["backbone."] },
            ignored: UNUSED.to_vec(),
            labels: Labels::default(),
            multi_label: false,
        })
    }

    /// Reads neck and head. `vit` is the encoder.
    fn head(&self, vit: &Vit) -> Result<DepthHead> {
        let config = self.config;
        let is_dpt = self.class.starts_with("DPT");
        let own_vit = self.encoder.1.model_type == DPT.model_type;
        let (states, norm, has_mask_token) = if own_vit {
            (self.hooks(vit.depth)?, false, false)
        } else {
            let encoder = self.encoder.0;
            let norm = encoder.flag("apply_layernorm")?.unwrap_or(true);
            let has_mask_token = encoder.flag("use_mask_token")?.unwrap_or(true);
            (self.stages(vit.depth)?, norm, has_mask_token)
        };
        let channels = config.sizes("neck_hidden_sizes")?.unwrap_or_else(|| {
            let defaults = if is_dpt {
                [96, 192, 384, 768]
            } else {
                [48, 96, 192, 384]
            };
            defaults.to_vec()
        });
        if channels.len() != states.len() {
            let (maps, count) = (channels.len(), states.len());
            let reason = format_args!("has {maps} sizes, but the encoder returns {count} maps");
            return Err(config.error("neck_hidden_sizes", reason));
        }
        let scales = self.scales()?;
        if scales.len() != channels.len() {
            let (scales, count) = (scales.len(), channels.len());
            let reason = format_args!("has {scales} factors, but `neck_hidden_sizes` has {count} sizes");
            return Err(config.error("reassemble_factors", reason));
        }
        let fusion = config
            .size("fusion_hidden_size")?
            .unwrap_or(if is_dpt { 256 } else { 64 });
        for (key, size) in channels
            .iter()
            .map(|&size| ("neck_hidden_sizes", size))
            .chain([("fusion_hidden_size", fusion)])
        {
            self.check_channels(key, size)?;
        }
        if fusion < 2 {
            return Err(config.error("fusion_hidden_size", "is 1, but the head halves it"));
        }
        let bias = config.accepting_null().flag("use_bias_in_fusion_residual")?;
        Ok(DepthHead {
            index: self.index(states.len())?,
            states,
            norm,
            has_mask_token,
            readout: if is_dpt { self.readout()? } else { Readout::Ignore },
            maps: channels.into_iter().zip(scales).collect(),
            fusion,
            fusion_bias: !is_dpt || bias.unwrap_or(true),
            form: if is_dpt {
                Form::Dpt {
                    projection: config.flag("add_projection")?.unwrap_or(false),
                }
            } else {
                self.depth_anything(vit)?
            },
        })
    }

    fn check_channels(&self, key: &str, size: usize) -> Result<()> {
        if size <= MOST_CHANNELS {
            return Ok(());
        }
        let reason = format_args!("has {size} channels, more than the maximum of {MOST_CHANNELS}");
        Err(self.config.error(key, reason))
    }

    /// Reads the head of Depth Anything.
    fn depth_anything(&self, vit: &Vit) -> Result<Form> {
        let config = self.config;
        for (key, given, expected) in [
            (
                "patch_size",
                config.size("patch_size")?.unwrap_or(14),
                vit.patch[0],
            ),
            (
                "reassemble_hidden_size",
                config.size("reassemble_hidden_size")?.unwrap_or(384),
                vit.dim,
            ),
        ] {
            if given != expected {
                let reason = format_args!("is {given}, but the encoder has {expected}");
                return Err(config.error(key, reason));
            }
        }
        let is_metric = match config.text("depth_estimation_type")? {
            None | Some("relative") => false,
            Some("metric") => true,
            Some(other) => {
                let reason = format_args!("is \"{other}\", expected \"relative\" or \"metric\"");
                return Err(config.error("depth_estimation_type", reason));
            }
        };
        let hidden = config.size("head_hidden_size")?.unwrap_or(32);
        self.check_channels("head_hidden_size", hidden)?;
        Ok(Form::DepthAnything {
            hidden,
            is_metric,
            max_depth: config.number("max_depth")?.unwrap_or(1.0) as f32,
        })
    }

    fn readout(&self) -> Result<Readout> {
        let config = self.config;
        match config.text("readout_type")? {
            None | Some("project") => {
                let function = activation(config, "hidden_act", Activation::GeluErf)?;
                Ok(Readout::Project(function))
            }
            Some("add") => Ok(Readout::Add),
            Some("ignore") => Ok(Readout::Ignore),
            Some(other) => {
                let reason = format_args!("is \"{other}\", expected \"project\", \"add\" or \"ignore\"");
                Err(config.error("readout_type", reason))
            }
        }
    }

    /// Reads the blocks of DPT's own encoder whose results the neck reads.
    fn hooks(&self, depth: usize) -> Result<Vec<usize>> {
        let key = "backbone_out_indices";
        let given = self.config.counts(key)?.unwrap_or_else(|| vec![2, 5, 8, 11]);
        // The library compares the index of each block with the list.
        let states: Vec<usize> = (0..depth)
            .filter(|block| given.contains(block))
            .map(|block| block + 1)
            .collect();
        if states.is_empty() {
            let reason = format_args!("names none of the encoder's {depth} blocks");
            return Err(self.config.error(key, reason));
        }
        Ok(states)
    }

    /// Reads the stages of DINOv2 whose results the neck reads. Stage 0 is what the first block reads.
    fn stages(&self, depth: usize) -> Result<Vec<usize>> {
        let encoder = self.encoder.0;
        if encoder.flag("reshape_hidden_states")?.unwrap_or(true) {
            let reason = "is not false: the neck reads tokens, not maps";
            return Err(encoder.error("reshape_hidden_states", reason));
        }
        let stage = |key: &str, value: &Value| {
            let stage = match value {
                Value::String(name) if name == "stem" => Some(0),
                Value::String(name) => name
                    .strip_prefix("stage")
                    .and_then(|number| number.parse().ok())
                    .filter(|&number: &usize| number > 0),
                // A negative index counts from the last stage.
                value => value.as_i64().and_then(|index| {
                    let index = if index < 0 {
                        index + depth as i64 + 1
                    } else {
                        index
                    };
                    usize::try_from(index).ok()
                }),
            };
            let stage = stage.filter(|&stage| stage <= depth);
            stage.ok_or_else(|| encoder.unexpected(key, value, "stages of the encoder"))
        };
        let mut lists = Vec::new();
        for key in ["out_indices", "out_features"] {
            if let Some(value) = encoder.get(key) {
                let list = value
                    .as_array()
                    .ok_or_else(|| encoder.unexpected(key, value, "a list of stages"))?;
                let stages = list.iter().map(|value| stage(key, value));
                lists.push((key, stages.collect::<Result<Vec<usize>>>()?));
            }
        }
        let Some((key, stages)) = lists.first() else {
            return Ok(vec![depth]);
        };
        if lists.iter().any(|(_, other)| other != stages) {
            return Err(encoder.error("out_features", "names other stages than `out_indices`"));
        }
        if stages.is_empty() || !stages.is_sorted_by(|a, b| a < b) {
            return Err(encoder.error(key, "is not a list of different stages in their order"));
        }
        Ok(stages.clone())
    }

    /// Reads the sizes of the maps, as factors of the grid of patches.
    fn scales(&self) -> Result<Vec<Scale>> {
        let key = "reassemble_factors";
        let config = self.config;
        let Some(value) = config.get(key) else {
            return Ok(vec![Scale::Up(4), Scale::Up(2), Scale::Same, Scale::Down(2)]);
        };
        let expected =
            format!("a list of numbers, of which those above 1 are whole and at most {MOST_SCALE}");
        let scale = |factor: &Value| {
            let factor = factor.as_f64()?;
            let most = MOST_SCALE as f64;
            if factor == 1.0 {
                Some(Scale::Same)
            } else if factor > 1.0 {
                (factor.fract() == 0.0 && factor <= most).then_some(Scale::Up(factor as usize))
            } else {
                // The library truncates the stride.
                (factor >= 1.0 / most).then_some(Scale::Down((1.0 / factor) as usize))
            }
        };
        let list = value.as_array().into_iter().flatten().map(scale);
        match list.collect::<Option<Vec<Scale>>>() {
            Some(scales) if value.is_array() => Ok(scales),
            _ => Err(config.unexpected(key, value, &expected)),
        }
    }

    /// Reads the index of the fused map that the head reads.
    fn index(&self, maps: usize) -> Result<usize> {
        let key = "head_in_index";
        let Some(value) = self.config.get(key) else {
            return Ok(maps - 1);
        };
        let index = value
            .as_i64()
            .map(|index| if index < 0 { index + maps as i64 } else { index });
        index
            .and_then(|index| usize::try_from(index).ok())
            .filter(|&index| index < maps)
            .ok_or_else(|| {
                let expected = format!("the index of one of {maps} maps");
                self.config.unexpected(key, value, &expected)
            })
    }
}
