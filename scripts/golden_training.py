"""Writes tests/golden/training: losses and weights of ten steps of training in PyTorch, in double precision, from the weights of
tests/golden. Needs the packages of scripts/requirements.txt.

    venv/bin/python scripts/golden_training.py [NAME ...]

A step is AdamW with weight decay on all tensors, after clipping by norm. The batches are numbers of a formula, which the test repeats:
two batches of four images take turns. Each file has `losses`, `norms` and, as f32, the trained tensors under their names in the weight file.
Models of zero_shot are trained on pairs of images and token ids, both towers, with the loss of their family as open_clip computes it.
"""

import json
import math
import sys
import tempfile
from pathlib import Path

import open_clip
import timm
import torch
import transformers
from open_clip.loss import ClipLoss, SigLipLoss
from safetensors.torch import load_file, save_file

ROOT = Path(__file__).resolve().parent.parent / "tests" / "golden"
STEPS, IMAGES, RATE, SMOOTHING = 10, 4, 1e-3, 0.1
LOSSES = {"timm_vit_class_token": "cross_entropy", "timm_vit_pre_norm_layer_scale": "binary_cross_entropy", "hf_vit": "cross_entropy"}
# Models with relative positions.
LOSSES |= dict.fromkeys(
    ["timm_beit", "timm_beit_shared", "hf_beit", "timm_swin", "hf_swin", "timm_swinv2", "hf_swinv2"], "cross_entropy"
)
# A model with pooled queries.
LOSSES |= {"timm_hiera": "cross_entropy"}
# Students with a classifier for distillation. The loss is DeiT's DistillationLoss, with alpha 0.25 and temperature 3.
LOSSES |= {"timm_deit_distilled": "soft_distillation", "hf_deit_teacher": "hard_distillation"}
# Models without a classifier, trained with embeddings of texts.
LOSSES |= {"hf_clip_projection": "info_nce", "timm_vit_embedding": "sigmoid"}
# Dual encoders, with the number of tokens of their texts.
PAIRS = {"hf_clip": 12, "hf_siglip": 16, "open_clip": 16}
RATES = {"timm_swinv2": 1e-4}  # at 1e-3, its norms in single and in double precision are apart after seven steps
SCALES = {"info_nce": [math.log(1 / 0.07)], "sigmoid": [math.log(10.0), -10.0]}  # log of the factor, bias
BUFFERS = ("relative_position_index", "attn_mask")  # older versions of timm stored them
FROZEN = "logit_scale"  # hipvit computes Swin V2's temperatures from it before training


def numbers(seed, *shape):
    """Returns multiples of 1/16 from -1 to 1."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count) * 7919 + seed * 104729) % 33).double().div(16).sub(1).reshape(shape)


def model(name, config):
    if config.get("architectures") == ["DeiTForImageClassificationWithTeacher"]:
        return transformers.DeiTForImageClassificationWithTeacher.from_pretrained(ROOT / name, attn_implementation="eager")
    if config.get("architectures") == ["CLIPVisionModelWithProjection"]:
        return transformers.CLIPVisionModelWithProjection.from_pretrained(ROOT / name, attn_implementation="eager")
    if "architecture" not in config:
        return transformers.AutoModelForImageClassification.from_pretrained(ROOT / name, attn_implementation="eager")
    size = config["pretrained_cfg"]["input_size"][1:]
    arguments = {"num_classes": config["num_classes"], "img_size": size} | config["model_args"]
    created = timm.create_model(config["architecture"], **arguments)
    weights = load_file(ROOT / name / "model.safetensors")
    if hasattr(created, "set_distilled_training"):
        created.set_distilled_training(True)
    created.load_state_dict({key: value for key, value in weights.items() if not key.endswith(BUFFERS)})
    return created


def stored(trained):
    """Returns the parameters under their names in the weight file, which transformers changes as it loads and saves."""
    if not hasattr(trained, "save_pretrained"):
        return trained.named_parameters()
    with tempfile.TemporaryDirectory() as folder:
        trained.save_pretrained(folder)
        return load_file(Path(folder) / "model.safetensors").items()


def loss_of(kind, logits, targets):
    if kind == "cross_entropy":
        return torch.nn.functional.cross_entropy(logits, targets)
    return torch.nn.functional.binary_cross_entropy_with_logits(logits, targets)


def distillation_loss(kind, logits, distilled, targets, teacher):
    """DeiT's losses.py."""
    alpha, tau = 0.25, 3.0
    functional = torch.nn.functional
    if kind == "soft_distillation":
        log_softmaxes = [functional.log_softmax(x / tau, dim=1) for x in (distilled, teacher)]
        other = functional.kl_div(*log_softmaxes, reduction="sum", log_target=True) * tau**2 / distilled.numel()
    else:
        other = functional.cross_entropy(distilled, teacher.argmax(dim=1))
    return functional.cross_entropy(logits, targets) * (1 - alpha) + other * alpha


def contrastive_loss(kind, images, texts, log_scale, bias):
    """open_clip's ClipLoss and SigLipLoss, on one rank."""
    images, texts = (torch.nn.functional.normalize(x, dim=-1) for x in (images, texts))
    if kind == "info_nce":
        return ClipLoss()(images, texts, log_scale.exp())
    return SigLipLoss()(images, texts, log_scale.exp(), bias)


def step_with(loss, optimizer, parameters, losses, norms):
    optimizer.zero_grad()
    loss.backward()
    norms.append(float(torch.nn.utils.clip_grad_norm_(parameters, 1.0)))
    optimizer.step()
    losses.append(float(loss.detach()))


def train(name, kind):
    torch.manual_seed(0)
    config = json.loads((ROOT / name / "config.json").read_text())
    trained = model(name, config).double().eval()  # dropout is off, and nothing else depends on the mode
    if hasattr(trained, "set_distilled_training"):
        trained.train()  # only then it returns both logits; it has no dropout
    for key, parameter in trained.named_parameters():
        parameter.requires_grad_(not key.endswith(FROZEN))
    groups = [{"params": [p for p in trained.parameters() if p.requires_grad]}]
    is_contrastive = kind in ("info_nce", "sigmoid")
    scales = [torch.nn.Parameter(torch.tensor(value, dtype=torch.float64)) for value in SCALES.get(kind, ())]
    groups.append({"params": scales, "weight_decay": 0.0})
    optimizer = torch.optim.AdamW(groups, lr=RATES.get(name, RATE), betas=(0.9, 0.999), eps=1e-6, weight_decay=0.05)
    all_parameters = [p for group in groups for p in group["params"]]
    if hasattr(trained, "config"):
        size = trained.config.image_size
    else:
        size = getattr(trained.patch_embed, "img_size", config.get("model_args", {}).get("img_size"))
    height, width = (size, size) if isinstance(size, int) else size
    losses, norms = [], []
    for step in range(STEPS):
        values = numbers(step % 2, IMAGES, 3, height, width)
        output = trained(values)
        if is_contrastive:
            images = getattr(output, "image_embeds", output)
            texts = numbers(step % 2 + 7, IMAGES, images.shape[1])
            loss = contrastive_loss(kind, images, texts, scales[0], scales[-1])
            step_with(loss, optimizer, all_parameters, losses, norms)
            continue
        if "distillation" in kind:
            logits, distilled = output if isinstance(output, tuple) else (output.cls_logits, output.distillation_logits)
        else:
            logits = getattr(output, "logits", output)
        classes = logits.shape[1]
        hard = torch.nn.functional.one_hot((torch.arange(IMAGES) * 3 + step % 2) % classes, classes).double()
        targets = hard * (1 - SMOOTHING) + SMOOTHING / classes
        if "distillation" in kind:
            teacher = 2 * numbers(step % 2 + 7, IMAGES, classes)
            loss = distillation_loss(kind, logits, distilled, targets, teacher)
        else:
            loss = loss_of(kind, logits, targets)
        step_with(loss, optimizer, all_parameters, losses, norms)
    parameters = {key for key, _ in trained.named_parameters()}
    buffers = {key for key, _ in trained.named_buffers()} - parameters
    kept = [(key, value) for key, value in stored(trained) if key not in buffers and not key.endswith(FROZEN)]
    tensors = {key: value.detach().float().contiguous() for key, value in kept}
    tensors |= {"scales": torch.stack([scale.detach() for scale in scales])} if scales else {}
    tensors |= {"losses": torch.tensor(losses, dtype=torch.float64), "norms": torch.tensor(norms, dtype=torch.float64)}
    save_file(tensors, ROOT / "training" / f"{name}.safetensors", metadata={"loss": kind})
    print(name, [height, width], losses[0], losses[-1], norms[:3])


def texts(vocabulary, tokens, turn, ends):
    """Returns ids. If a token ends the texts, it is the last one of the vocabulary, and texts have different lengths."""
    place, row = torch.arange(tokens), torch.arange(IMAGES)[:, None]
    ids = (place * 31 + row * 7 + turn * 13) % (vocabulary - 2)
    if ends:
        last = 3 + (row * 3 + turn) % (tokens - 4)
        ids = torch.where(place < last, ids, torch.where(place == last, vocabulary - 1, 0))
    return ids


def train_pairs(name, tokens):
    torch.manual_seed(0)
    folder = ROOT / "zero_shot" / name
    is_siglip = "siglip" in name
    if name == "open_clip":
        trained, _ = open_clip.create_model_from_pretrained(f"local-dir:{folder}")
        vocabulary, size = trained.vocab_size, trained.visual.image_size[0]
    else:
        kind = transformers.SiglipModel if is_siglip else transformers.CLIPModel
        trained = kind.from_pretrained(folder, attn_implementation="eager")
        vocabulary, size = trained.config.text_config.vocab_size, trained.config.vision_config.image_size
    trained = trained.double().eval()  # dropout is off, and nothing else depends on the mode
    scales = [parameter for key, parameter in trained.named_parameters() if key.startswith("logit_")]
    others = [parameter for key, parameter in trained.named_parameters() if not key.startswith("logit_")]
    groups = [{"params": others}, {"params": scales, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.05)
    losses, norms = [], []
    for step in range(STEPS):
        values, ids = numbers(step % 2, IMAGES, 3, size, size), texts(vocabulary, tokens, step % 2, not is_siglip)
        if name == "open_clip":
            images, captions = trained.encode_image(values), trained.encode_text(ids)
        else:
            output = trained(input_ids=ids, pixel_values=values)
            images, captions = output.image_embeds, output.text_embeds
        kind = "sigmoid" if is_siglip else "info_nce"
        loss = contrastive_loss(kind, images, captions, trained.logit_scale, trained.logit_bias if is_siglip else None)
        step_with(loss, optimizer, others + scales, losses, norms)
        if not is_siglip:
            trained.logit_scale.data.clamp_(0, math.log(100))  # as open_clip_train does
    parameters = {key for key, _ in trained.named_parameters()}
    buffers = {key for key, _ in trained.named_buffers()} - parameters
    tensors = {key: value.detach().float().contiguous() for key, value in stored(trained) if key not in buffers}
    tensors |= {"losses": torch.tensor(losses, dtype=torch.float64), "norms": torch.tensor(norms, dtype=torch.float64)}
    save_file(tensors, ROOT / "training" / f"pairs_{name}.safetensors", metadata={"loss": kind})
    print(name, losses[0], losses[-1], norms[:3], [float(scale.detach()) for scale in scales])


if __name__ == "__main__":
    (ROOT / "training").mkdir(exist_ok=True)
    for name in sys.argv[1:] or [*LOSSES, *PAIRS]:
        if name in PAIRS:
            train_pairs(name, PAIRS[name])
        else:
            train(name, LOSSES[name])
