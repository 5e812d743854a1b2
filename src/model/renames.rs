//! Translates tensor names to those in the libraries' files.
//!
//! Training may put a prefix before all names, and transformers 5 uses other names while a model is in memory.

/// Prefixes that change nothing else:
///
/// - `module.`: PyTorch's `DataParallel` and `DistributedDataParallel`
/// - `_orig_mod.`: `torch.compile`
/// - `timm_model.`: transformers' wrapper for models of timm
const PREFIXES: [&str; 3] = ["module.", "_orig_mod.", "timm_model."];

/// Python program that removes a prefix from all names in a file. Arguments: the model's directory or file, the prefix,
/// the output file.
pub(super) const REMOVE_PREFIX: &str = "import pathlib, sys; from safetensors.torch import load_file, save_file; p = pathlib.Path(sys.argv[1]); \
                                        save_file({k.removeprefix(sys.argv[2]): v for f in (sorted(p.glob(\"model*.safetensors\")) \
                                        if p.is_dir() else [p]) for k, v in load_file(f).items()}, sys.argv[3], metadata={\"format\": \"pt\"})";

/// Returns `name` without the [`PREFIXES`], which may be repeated and in any order.
///
/// timm also removes `module.` and `_orig_mod.` from each name. transformers does not, and would leave the model's
/// weights random.
pub(super) fn bare(name: &str) -> &str {
    let mut rest = name;
    while let Some(bare) = PREFIXES.iter().find_map(|prefix| rest.strip_prefix(prefix)) {
        rest = bare;
    }
    rest
}

/// Pairs of name parts: in the modules of transformers 5, and in its files.
type Dialect = &'static [(&'static str, &'static str)];

/// Name parts of ViT, DeiT and BEiT.
const VIT: Dialect = &[
    ("layers", "encoder.layer"),
    ("attention.q_proj", "attention.attention.query"),
    ("attention.k_proj", "attention.attention.key"),
    ("attention.v_proj", "attention.attention.value"),
    ("attention.o_proj", "attention.output.dense"),
    ("mlp.fc1", "intermediate.dense"),
    ("mlp.fc2", "output.dense"),
];

/// Name parts of DINOv2, with or without registers.
const DINOV2: Dialect = &[
    ("attention.q_proj", "attention.attention.query"),
    ("attention.k_proj", "attention.attention.key"),
    ("attention.v_proj", "attention.attention.value"),
    ("attention.o_proj", "attention.output.dense"),
    ("mlp.down_proj", "mlp.weights_out"),
];

const DINOV3: Dialect = &[("model.layer", "layer")];

const SWIN: Dialect = &[
    ("attention.q_proj", "attention.self.query"),
    ("attention.k_proj", "attention.self.key"),
    ("attention.v_proj", "attention.self.value"),
    (
        "attention.relative_position_bias.relative_position_bias_table",
        "attention.self.relative_position_bias_table",
    ),
    ("attention.o_proj", "attention.output.dense"),
    ("mlp.fc1", "intermediate.dense"),
    ("mlp.fc2", "output.dense"),
];

const RT_DETR: Dialect = &[
    ("encoder.aifi", "encoder.encoder"),
    ("o_proj", "out_proj"),
    ("mlp.fc1", "fc1"),
    ("mlp.fc2", "fc2"),
];

/// Prefixes of a trunk in a model with a head. A trunk that is saved alone has no prefix.
const TRUNKS: [&str; 9] = [
    "vit.",
    "deit.",
    "beit.",
    "dinov2.",
    "dinov2_with_registers.",
    "swin.",
    "swinv2.",
    "vision_model.",
    "model.",
];

/// Returns the name that the tensor `name` has in files written by transformers, for a model of this type.
///
/// Files with a model's `state_dict()` have the names of its modules instead.
pub(super) fn in_files(model_type: &str, name: &str) -> String {
    match model_type {
        // A name without this part is from another release, or outside of the blocks.
        "vit" | "deit" | "beit" if has_part(name, "layers") => translate(VIT, name),
        "dinov2" | "dinov2_with_registers" => translate(DINOV2, name),
        "swin" => translate(SWIN, name),
        "rt_detr" | "rt_detr_v2" => translate(RT_DETR, name),
        "vision-encoder-decoder" => match name.strip_prefix("encoder.") {
            // Stages of Donut have the same names everywhere.
            Some(rest) if !rest.starts_with("encoder.layers.") => {
                format!("encoder.{}", in_files("vit", rest))
            }
            _ => name.to_owned(),
        },
        "depth_anything" | "dpt" => match name.strip_prefix("backbone.") {
            Some(rest) => format!("backbone.{}", in_files("dinov2", rest)),
            None => name.to_owned(),
        },
        _ => name.to_owned(),
    }
}

/// Returns the name of the existing tensor that `name` refers to in the notation of any library.
pub(super) fn find(name: &str, exists: impl Fn(&str) -> bool) -> Option<String> {
    let bare = bare(name);
    let two_towers = exists("logit_scale");
    let names = [&[][..], VIT, DINOV2, DINOV3, SWIN].map(|dialect| translate(dialect, bare));
    names.into_iter().find_map(|name| {
        let shorter = TRUNKS
            .iter()
            .filter_map(|trunk| name.strip_prefix(trunk))
            .map(str::to_owned);
        let longer = TRUNKS
            .iter()
            .filter(|trunk| !(two_towers && **trunk == "vision_model."))
            .map(|trunk| format!("{trunk}{name}"));
        let mut candidates = std::iter::once(name.clone()).chain(shorter).chain(longer);
        candidates.find(|candidate| exists(candidate))
    })
}

fn has_part(name: &str, part: &str) -> bool {
    name.split('.').any(|other| other == part)
}

/// Replaces whole parts of a name.
fn translate(dialect: Dialect, name: &str) -> String {
    let mut name = format!(".{name}.");
    for (module, file) in dialect {
        name = name.replace(&format!(".{module}."), &format!(".{file}."));
    }
    name.trim_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_training_are_removed_from_the_front_alone() {
        for name in [
            "blocks.0.norm1.weight",
            "module.blocks.0.norm1.weight",
            "_orig_mod.blocks.0.norm1.weight",
            "_orig_mod.module._orig_mod.blocks.0.norm1.weight",
            "module.module.blocks.0.norm1.weight",
            "module._orig_mod.timm_model.blocks.0.norm1.weight",
        ] {
            assert_eq!(bare(name), "blocks.0.norm1.weight");
        }
        assert_eq!(bare("head.module.weight"), "head.module.weight");
        assert_eq!(bare("modules.weight"), "modules.weight");
    }

    #[test]
    fn modules_of_transformers_5_have_the_names_of_its_files() {
        let vit = |name| in_files("vit", name);
        assert_eq!(
            vit("vit.layers.0.mlp.fc1.weight"),
            "vit.encoder.layer.0.intermediate.dense.weight"
        );
        assert_eq!(
            vit("layers.11.attention.o_proj.bias"),
            "encoder.layer.11.attention.output.dense.bias"
        );
        let own = "vit.encoder.layer.0.attention.attention.query.weight";
        assert_eq!(vit(own), own);
        assert_eq!(
            in_files("dinov2", "encoder.layer.0.attention.v_proj.weight"),
            "encoder.layer.0.attention.attention.value.weight"
        );
        assert_eq!(
            in_files("vision-encoder-decoder", "encoder.layers.0.mlp.fc2.bias"),
            "encoder.encoder.layer.0.output.dense.bias"
        );
        assert_eq!(
            in_files("depth_anything", "backbone.encoder.layer.3.attention.k_proj.bias"),
            "backbone.encoder.layer.3.attention.attention.key.bias"
        );
        let neck = "neck.reassemble_stage.layers.0.projection.weight";
        assert_eq!(in_files("dpt", neck), neck);
        let decoder = "decoder.model.decoder.layers.0.self_attn.q_proj.bias";
        assert_eq!(in_files("vision-encoder-decoder", decoder), decoder);
        let stage = "encoder.encoder.layers.0.blocks.1.intermediate.dense.bias";
        assert_eq!(in_files("vision-encoder-decoder", stage), stage);
        assert_eq!(
            in_files("rt_detr", "model.encoder.aifi.0.layers.0.self_attn.o_proj.bias"),
            "model.encoder.encoder.0.layers.0.self_attn.out_proj.bias"
        );
        assert_eq!(
            in_files("rt_detr_v2", "model.decoder.layers.0.mlp.fc1.weight"),
            "model.decoder.layers.0.fc1.weight"
        );
        let clip = "vision_model.encoder.layers.0.mlp.fc1.weight";
        assert_eq!(in_files("clip", clip), clip);
    }
}
