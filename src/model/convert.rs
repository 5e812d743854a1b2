//! Commands that convert the files of other formats, for error messages.

use std::path::Path;

use super::file_names::WEIGHTS;
use super::shell::shell;
use hipvit_files::foreign;

/// Python program that converts the vision tower of an open_clip model to a timm model. Arguments: the model's
/// directory, the output directory.
pub(super) const CONVERT_OPEN_CLIP: &str = "import json, pathlib, sys, timm; from timm.models import save_for_hf; d = pathlib.Path(sys.argv[1]); \
                            c = json.load(open(d / \"open_clip_config.json\")); m, p = c[\"model_cfg\"], c.get(\"preprocess_cfg\", \
                            {}); v = m[\"vision_cfg\"]; t = v.get(\"timm_model_name\"); n = m[\"embed_dim\"] if not t or \
                            v.get(\"timm_proj\") not in (None, \"\", \"none\") else 0; a = t or \"vit_%s_patch%d_clip_%s%d\" % \
                            (dict([(768, \"base\"), (1024, \"large\"), (1280, \"huge\"), (1408, \"giant\"), (1664, \
                            \"gigantic\")])[v[\"width\"]], v[\"patch_size\"], \"quickgelu_\" if m.get(\"quick_gelu\") else \"\", \
                            v[\"image_size\"]); f = [*d.glob(\"*.safetensors\"), *d.glob(\"*.bin\")][0]; o = dict(file=str(f), \
                            num_classes=n, crop_pct=1.0, crop_mode=\"squash\" if p.get(\"resize_mode\") == \"squash\" else \"center\", \
                            **{k: p[k] for k in (\"mean\", \"std\", \"interpolation\") if k in p}); save_for_hf(timm.create_model(a, \
                            pretrained=True, num_classes=n, pretrained_cfg_overlay=o), sys.argv[2], safe_serialization=True)";
/// Python program that writes `model.safetensors` from the PyTorch weights in the directory given as argument. It runs
/// no code from the weights.
pub(super) const CONVERT: &str = "import pathlib, sys, torch; from safetensors.torch import save_file; d = pathlib.Path(sys.argv[1]); \
                       save_file({k: v.clone().contiguous() for f in d.glob(\"pytorch_model*.bin\") for k, v in \
                       torch.load(f, map_location=\"cpu\", weights_only=True).items()}, d / \"model.safetensors\")";
/// Python program that converts one PyTorch file to safetensors. Arguments: the file, the output file.
const CONVERT_FILE: &str = "import sys, torch; from safetensors.torch import save_file; s = torch.load(sys.argv[1], map_location=\"cpu\", \
                            weights_only=True); s = next((s[k] for k in (\"state_dict_ema\", \"model_ema\", \"state_dict\", \"model\") \
                            if k in s), s); save_file({k: v.clone().contiguous() for k, v in s.items() if hasattr(v, \"shape\")}, \
                            sys.argv[2], metadata={\"format\": \"pt\"})";

/// Returns the error text for a weight file that is not safetensors: what its content is, and what to do.
pub(super) fn not_weights(file: &Path, content: &[u8], what: &str) -> String {
    let advice = if foreign::is_pytorch(content) {
        format!(": not safetensors. {}", convert(file))
    } else {
        String::new()
    };
    format!("is {what}{advice}")
}

/// Returns the command that converts a PyTorch file.
pub(super) fn convert(file: &Path) -> String {
    let target = file.with_file_name(WEIGHTS);
    let target = if target == file {
        file.with_file_name("converted.safetensors")
    } else {
        target
    };
    format!(
        "Convert it with Python, torch and safetensors: python3 -c '{CONVERT_FILE}' {} {}",
        shell(file),
        shell(&target)
    )
}
