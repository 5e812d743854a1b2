"""Writes tests/golden/zero_shot: tiny dual encoders of transformers with both towers and tokenizers of their own, in each form of
tokenizer that hipvit reads, with what transformers computes in double precision:

    venv/bin/pip install -r scripts/requirements.txt
    venv/bin/python scripts/golden_zero_shot.py

golden.safetensors of each case has

- `pixel_values`,
- `input_ids` of golden.json's `texts`, padded to the context with -1 where the library does not pad,
- `text_embeds` and `logits_per_image` of these texts,
- `ensemble`: the logits of `labels` with `templates`, as in CLIP's and open_clip's zero-shot code. The mean of normalised embeddings
  is normalised again.

See also: goldens.py, for the vision towers alone.
"""

import json
import shutil
from pathlib import Path

import torch
import transformers as hf
from PIL import Image
from safetensors.torch import load_file, save_file
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from golden_outputs import save_golden
from golden_transformers import MLP, SMALL, square
from golden_weights import randomise

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden"
DIRECTORY = GOLDEN / "zero_shot"
IMAGES = ("photo.jpg", "wide.png")
CONTEXT = 16
TEXT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 40,
        "max_position_embeddings": CONTEXT}
CORPUS = ["a photo of a cat", "a photo of a dog", "a blurry photo of the okapi", "a drawing of the number seven", "the cat's toy",
          "it doesn't look like a photograph", "a bad photo of two dogs", "people on the beach", "A large brown animal"]
TEXTS = ["a photo of a cat", "A Photo  of a DOG.", "the cat's toy: 2 okapis, café", "number seven",
         "people people people people people people people people people people people people people people on the beach"]
LABELS = ["cat", "dog", "okapi"]
TEMPLATES = ["a photo of a {}.", "a drawing of the {}"]
START, END = "<|startoftext|>", "<|endoftext|>"


def byte_symbols() -> list[str]:
    return sorted(pre_tokenizers.ByteLevel.alphabet())


def clip_vocabulary() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Bytes, bytes that end a word, some merges, and the two special tokens last, as CLIP has them."""
    symbols = byte_symbols()
    base = {token: index for index, token in enumerate(symbols + [symbol + "</w>" for symbol in symbols])}
    merges = [("c", "a"), ("ca", "t</w>"), ("p", "h"), ("o", "t"), ("ph", "ot"), ("phot", "o</w>"), ("o", "f</w>"), ("d", "o"),
              ("do", "g</w>"), ("t", "h"), ("th", "e</w>"), ("ph", "o"), ("a", "p"), ("e", "v")]
    vocabulary = base | {left + right: len(base) + index for index, (left, right) in enumerate(merges)}
    for token in (START, END):
        vocabulary[token] = len(vocabulary)
    return vocabulary, merges


def clip_tokenizer() -> hf.CLIPTokenizer:
    vocabulary, merges = clip_vocabulary()
    return hf.CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=CONTEXT)


def siglip_tokenizer() -> hf.PreTrainedTokenizerFast:
    """A SentencePiece model as `tokenizer.json`, with what SigLIP's tokenizer does to a text in its normalizer."""
    words = sorted({"▁" + word for text in CORPUS for word in text.lower().replace("'", "").split()})
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -3.0)]
    pieces += [(word, -4.0 - 0.125 * index) for index, word in enumerate(words)]
    pieces += [(letter, -9.0 - 0.25 * index) for index, letter in enumerate("abcdefghijklmnopqrstuvwxyz")]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=2))
    tokenizer.normalizer = normalizers.Sequence([
        normalizers.Lowercase(), normalizers.Replace(Regex("[" + "".join(rf"\{c}" for c in
            "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") + "]"), ""), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", pad_token="</s>", unk_token="<unk>",
                                      model_max_length=CONTEXT)


def siglip2_tokenizer() -> hf.Siglip2Tokenizer:
    """Gemma's form: BPE with bytes to fall back on, spaces as ▁."""
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    letters = ["▁"] + [chr(code) for code in range(ord("a"), ord("z") + 1)]
    base = special + [f"<0x{byte:02X}>" for byte in range(256)] + letters
    merges = [("▁", "a"), ("c", "a"), ("ca", "t"), ("▁", "cat"), ("▁", "o"), ("▁o", "f"), ("p", "h"), ("o", "t"), ("ph", "ot")]
    vocabulary = {token: index for index, token in enumerate(base + [left + right for left, right in merges])}
    tokenizer = hf.Siglip2Tokenizer(vocab=vocabulary, merges=merges, model_max_length=CONTEXT, padding_side="right")
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(single="$A <eos>", special_tokens=[("<eos>", 1)])
    return tokenizer


def clip(eos: int) -> hf.CLIPConfig:
    vocabulary, _ = clip_vocabulary()
    text = TEXT | {"vocab_size": len(vocabulary), "projection_dim": 20, "bos_token_id": vocabulary[START], "eos_token_id": eos}
    return hf.CLIPConfig(vision_config=SMALL | MLP | {"projection_dim": 20}, text_config=text, projection_dim=20)


def siglip(tokenizer) -> hf.SiglipConfig:
    text = TEXT | {"vocab_size": len(tokenizer), "projection_size": 24}
    return hf.SiglipConfig(vision_config=SMALL | MLP, text_config=text)


def older_files(directory: Path) -> None:
    """vocab.json and merges.txt in place of tokenizer.json."""
    (directory / "tokenizer.json").unlink()
    vocabulary, merges = clip_vocabulary()
    (directory / "vocab.json").write_text(json.dumps(vocabulary))
    (directory / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in merges))


def open_clip_name(name: str) -> str:
    """A tensor of transformers' CLIP by open_clip's name, as transformers' conversion script has it the other way round."""
    for old, new in [("vision_model.embeddings.class_embedding", "visual.class_embedding"),
                     ("vision_model.embeddings.patch_embedding", "visual.conv1"),
                     ("vision_model.embeddings.position_embedding.weight", "visual.positional_embedding"),
                     ("vision_model.pre_layrnorm", "visual.ln_pre"), ("vision_model.post_layernorm", "visual.ln_post"),
                     ("vision_model.encoder.layers", "visual.transformer.resblocks"),
                     ("text_model.embeddings.token_embedding", "token_embedding"),
                     ("text_model.embeddings.position_embedding.weight", "positional_embedding"),
                     ("text_model.final_layer_norm", "ln_final"), ("text_model.encoder.layers", "transformer.resblocks"),
                     ("layer_norm1", "ln_1"), ("layer_norm2", "ln_2"), ("self_attn.", "attn."), ("mlp.fc1", "mlp.c_fc"),
                     ("mlp.fc2", "mlp.c_proj"), ("visual_projection.weight", "visual.proj"),
                     ("text_projection.weight", "text_projection")]:
        name = name.replace(old, new)
    return name


def open_clip_files(directory: Path) -> None:
    """The same model in the form that open_clip gives to the hub."""
    stored = {open_clip_name(name): tensor for name, tensor in load_file(directory / "model.safetensors").items()}
    tensors = {}
    for name, tensor in stored.items():
        if name.endswith(("visual.proj", "text_projection")):
            tensors[name] = tensor.T
        elif ".q_proj." in name:
            parts = [stored[name.replace(".q_proj.", f".{part}_proj.")] for part in "qkv"]
            tensors[name.replace(".q_proj.", ".in_proj_")] = torch.cat(parts)
        elif ".k_proj." not in name and ".v_proj." not in name:
            tensors[name] = tensor
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, directory / "open_clip_model.safetensors",
              {"format": "pt"})
    vocabulary, _ = clip_vocabulary()
    config = {
        "model_cfg": {
            "embed_dim": 20, "quick_gelu": True,
            "vision_cfg": {"image_size": 32, "layers": 2, "width": 24, "head_width": 8, "patch_size": 8, "mlp_ratio": 2.5},
            "text_cfg": {"context_length": CONTEXT, "vocab_size": len(vocabulary), "width": 16, "heads": 2, "layers": 2,
                         "mlp_ratio": 2.5}},
        "preprocess_cfg": {"mean": CLIP_PROCESSOR.image_mean, "std": CLIP_PROCESSOR.image_std}}
    (directory / "open_clip_config.json").write_text(json.dumps(config, indent=4))
    for name in ("config.json", "model.safetensors", "preprocessor_config.json"):
        (directory / name).unlink()


CLIP_PROCESSOR = CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size=square(32))
SIGLIP_PROCESSOR = SiglipImageProcessorPil(size=square(32))


def unit(vectors: torch.Tensor) -> torch.Tensor:
    return vectors / vectors.norm(dim=-1, keepdim=True)


@torch.no_grad()
def run(name: str, model_class: type, config, tokenizer, processor, edit=None, final=None) -> None:
    directory = DIRECTORY / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    model = model_class(config).eval()
    randomise(model, name)
    model.logit_scale.fill_(2.3)
    padded = model_class is hf.SiglipModel
    if padded:
        model.logit_bias.fill_(-3.1)
    model.save_pretrained(directory)
    processor.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    if edit:
        edit(directory)

    model = model_class.from_pretrained(directory, dtype=torch.float64).eval()
    pixels = torch.stack([processor(Image.open(GOLDEN / "images" / image).convert("RGB"), return_tensors="pt").pixel_values[0]
                          for image in IMAGES])

    tokenizer = type(tokenizer).from_pretrained(directory)

    def ids(texts: list[str]) -> torch.Tensor:
        options = {"padding": "max_length", "max_length": CONTEXT, "truncation": True}
        return tokenizer(texts, return_tensors="pt", **options)

    def embed(texts: list[str]) -> torch.Tensor:
        return model.get_text_features(input_ids=ids(texts)["input_ids"]).pooler_output

    def logits(texts: torch.Tensor) -> torch.Tensor:
        similarity = unit(model.get_image_features(pixels.double()).pooler_output) @ unit(texts).T
        return similarity * model.logit_scale.exp() + (model.logit_bias if padded else 0)

    encoded = ids(TEXTS)
    input_ids = encoded["input_ids"]
    result = model(input_ids=input_ids, pixel_values=pixels.double())
    assert torch.allclose(result.logits_per_image, logits(embed(TEXTS)), atol=1e-12)
    labels = torch.stack([unit(embed([template.format(label) for template in TEMPLATES])).mean(0) for label in LABELS])
    if not padded:
        input_ids = input_ids.masked_fill(encoded["attention_mask"] == 0, -1)
    spread = float((result.logits_per_image[:, 0] - result.logits_per_image[:, 1]).abs().min())
    assert spread > 1e-2, f"{name}: texts differ by {spread}"
    tensors = {"pixel_values": pixels, "input_ids": input_ids, "text_embeds": embed(TEXTS),
               "logits_per_image": result.logits_per_image, "ensemble": logits(labels)}
    save_golden(tensors, directory / "golden.safetensors")
    golden = {"texts": TEXTS, "labels": LABELS, "templates": TEMPLATES, "images": IMAGES, "transformers": hf.__version__}
    (directory / "golden.json").write_text(json.dumps(golden, indent=2, ensure_ascii=False) + "\n")
    if final:
        final(directory)
    size = sum(file.stat().st_size for file in directory.iterdir())
    print(f"{name:16} {size / 1000:6.1f} kB  spread {spread:.2f}")


def main() -> None:
    torch.set_num_threads(1)
    hf.logging.set_verbosity_error()
    hf.logging.disable_progress_bar()
    vocabulary, _ = clip_vocabulary()
    run("hf_clip", hf.CLIPModel, clip(vocabulary[END]), clip_tokenizer(), CLIP_PROCESSOR)
    run("hf_clip_older", hf.CLIPModel, clip(2), clip_tokenizer(), CLIP_PROCESSOR, older_files)
    run("open_clip", hf.CLIPModel, clip(2), clip_tokenizer(), CLIP_PROCESSOR, final=open_clip_files)
    run("hf_siglip", hf.SiglipModel, siglip(siglip_tokenizer()), siglip_tokenizer(), SIGLIP_PROCESSOR)
    run("hf_siglip2", hf.SiglipModel, siglip(siglip2_tokenizer()), siglip2_tokenizer(), SIGLIP_PROCESSOR)


if __name__ == "__main__":
    main()
