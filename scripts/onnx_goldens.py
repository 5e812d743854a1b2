"""Writes tests/golden/onnx: small ONNX models by both exporters of torch, with inputs and ONNX Runtime's outputs.

    python scripts/onnx_goldens.py                 # all cases, and the index
    python scripts/onnx_goldens.py resnet swin     # some; the index is left alone

The architectures are timm's and transformers' own, with few channels. The script checks ONNX Runtime against torch in double precision.
Needs the packages of scripts/requirements.txt. See also: onnx_zoo.py, the published architectures; tests/golden/README.md.
"""

import argparse
import json
import shutil
import sys
import warnings
from pathlib import Path

import numpy
import onnx
import onnxruntime
import timm
import torch
import transformers
from safetensors.numpy import save_file

import onnx_transformers
from onnx_models import SEED, Case, Selected, calibrate, disturb, random_inputs
from onnx_runner import difference, runtime
from onnx_zoo import export_model

ROOT = Path(__file__).resolve().parent.parent / "tests" / "golden" / "onnx"
# Different, so that a batch that was traced as a constant shows.
EXPORT_BATCH, RUN_BATCH = 3, 2
# Stack traces, source modules and shapes are most of a small file's bytes: one case keeps the modules' names and the shapes.
DESCRIBED = "vit"
VERSIONS = {package.__name__: package.__version__.split("+")[0] for package in (onnx, onnxruntime, timm, torch, transformers)}


def image(model: torch.nn.Module, side: int, channels: int = 3):
    return model, random_inputs({"input": (channels, side, side)}), ["output"]


def vit():
    return image(timm.models.VisionTransformer(img_size=24, patch_size=8, embed_dim=24, depth=2, num_heads=2, mlp_ratio=2, num_classes=10), 24)


def resnet():
    block = timm.models.resnet.Bottleneck
    return image(timm.models.ResNet(block, [1, 1, 1, 1], channels=(4, 6, 8, 8), stem_width=8, num_classes=10), 44)


def convnext():
    return image(timm.models.ConvNeXt(depths=(1, 1, 2, 1), dims=(8, 12, 16, 24), num_classes=10), 36)


def swin():
    model = timm.models.SwinTransformer(img_size=16, patch_size=2, embed_dim=12, depths=(2, 1), num_heads=(2, 3), window_size=4, mlp_ratio=2, num_classes=10)
    return image(model, 16)


def swin_v2():
    model = timm.models.SwinTransformerV2(img_size=16, patch_size=2, embed_dim=12, depths=(2, 1), num_heads=(2, 3), window_size=2, mlp_ratio=2, num_classes=10)
    return image(model, 16)


def maxvit():
    from timm.models.maxxvit import MaxxVit, MaxxVitCfg, MaxxVitConvCfg, MaxxVitTransformerCfg

    config = MaxxVitCfg(
        embed_dim=(16, 16), depths=(1, 1), block_type=("M", "M"), stem_width=8, head_hidden_size=16,
        conv_cfg=MaxxVitConvCfg(expand_ratio=2), transformer_cfg=MaxxVitTransformerCfg(dim_head=8, window_size=(4, 4), grid_size=(4, 4)),
    )
    return image(MaxxVit(config, img_size=32, num_classes=10), 32)


def efficientnet():
    from timm.models._efficientnet_builder import decode_arch_def

    blocks = [["ds_r1_k3_s1_e1_c8_se0.25"], ["ir_r2_k3_s2_e3_c8_se0.25"], ["ir_r1_k5_s2_e3_c12_se0.25"], ["ir_r2_k5_s1_e2_c16_se0.25"]]
    model = timm.models.EfficientNet(decode_arch_def(blocks), num_features=32, stem_size=8, act_layer=torch.nn.SiLU, num_classes=10)
    return image(model, 44)


def mobilenet_v4():
    from timm.models._efficientnet_builder import decode_arch_def

    blocks = [["cn_r1_k3_s2_e1_c8", "cn_r1_k1_s1_e1_c8"], ["uir_r1_a5_k5_s2_e3_c12", "uir_r1_a0_k3_s1_e2_c12", "uir_r1_a3_k0_s1_e4_c12"],
              ["uir_r1_a3_k3_s2_e3_c16"], ["cn_r1_k1_s1_c32"]]
    model = timm.models.MobileNetV3(decode_arch_def(blocks), num_features=48, stem_size=8, fix_stem=True, head_bias=False, head_norm=True,
                                    act_layer=torch.nn.ReLU, num_classes=10)
    return image(model, 44)


def segformer():
    config = transformers.SegformerConfig(hidden_sizes=[8, 8, 12, 16], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 2], mlp_ratios=[2, 2, 2, 2],
                                          decoder_hidden_size=12, num_labels=5)
    return transformers.SegformerForSemanticSegmentation(config), onnx_transformers.pixels(40), ["logits"]


def depth_anything():
    backbone = transformers.Dinov2Config(hidden_size=16, num_attention_heads=2, num_hidden_layers=4, mlp_ratio=2, image_size=56, patch_size=14,
                                         out_indices=[1, 2, 3, 4], reshape_hidden_states=False, apply_layernorm=True)
    config = transformers.DepthAnythingConfig(backbone_config=backbone, patch_size=14, reassemble_hidden_size=16, neck_hidden_sizes=[4, 6, 8, 8],
                                              fusion_hidden_size=8, head_hidden_size=8)
    return transformers.DepthAnythingForDepthEstimation(config), onnx_transformers.pixels(42), ["predicted_depth"]


def rt_detr():
    backbone = transformers.RTDetrResNetConfig(embedding_size=8, hidden_sizes=[8, 8, 8, 12], depths=[1, 1, 1, 1], layer_type="bottleneck",
                                               out_features=["stage2", "stage3", "stage4"])
    config = transformers.RTDetrConfig(
        backbone_config=backbone, encoder_in_channels=[8, 8, 12], encoder_hidden_dim=12, encoder_ffn_dim=12, encoder_attention_heads=2, d_model=12,
        decoder_in_channels=[12, 12, 12], decoder_ffn_dim=12, decoder_layers=1, decoder_attention_heads=2, decoder_n_points=2, num_queries=8,
        num_labels=4, csp_rep_blocks=1, hidden_expansion=0.5)
    return transformers.RTDetrForObjectDetection(config), onnx_transformers.pixels(64), ["logits", "pred_boxes"]


def clip_text():
    config = transformers.CLIPTextConfig(vocab_size=60, hidden_size=24, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
                                         max_position_embeddings=20, projection_dim=16, eos_token_id=59, bos_token_id=58, pad_token_id=59)
    return transformers.CLIPTextModelWithProjection(config), onnx_transformers.tokens(16, 60), ["text_embeds", "last_hidden_state"]


def dinov3():
    config = transformers.DINOv3ViTConfig(hidden_size=24, intermediate_size=48, num_attention_heads=2, num_hidden_layers=2, image_size=24, patch_size=8,
                                          num_register_tokens=2)
    return transformers.DINOv3ViTModel(config), onnx_transformers.pixels(24), ["last_hidden_state", "pooler_output"]


def sam():
    config = transformers.SamVisionConfig(hidden_size=24, num_hidden_layers=2, num_attention_heads=2, image_size=40, patch_size=8, output_channels=12,
                                          global_attn_indexes=[1], window_size=3, mlp_dim=32)
    return transformers.SamVisionModel(config), onnx_transformers.pixels(40), ["last_hidden_state"]


# Name, what builds the model, exporter, opset (`None`: the exporter's default), data type, and what the case is for.
CASES = [
    ("vit", vit, "dynamo", None, "float32", "attention of the newer exporter, class token"),
    ("vit_attention", vit, "dynamo", 23, "float32", "the op Attention"),
    ("vit_f16", vit, "torchscript", None, "float16", "a model in half precision"),
    ("resnet", resnet, "torchscript", None, "float32", "convolutions, max pooling"),
    ("resnet_qdq", resnet, "torchscript", None, "int8", "QuantizeLinear and DequantizeLinear, per channel"),
    ("convnext", convnext, "dynamo", None, "float32", "depthwise convolutions, norms over channels"),
    ("convnext_opset_16", convnext, "torchscript", 16, "float32", "LayerNormalization and GELU in primitive ops"),
    ("swin", swin, "torchscript", None, "float32", "window partition, cyclic shifts with masks"),
    ("swin_v2", swin_v2, "dynamo", None, "float32", "cosine attention"),
    ("maxvit", maxvit, "dynamo", None, "float32", "windows and grids, squeeze and excitation"),
    ("efficientnet", efficientnet, "torchscript", None, "float32", "SiLU, squeeze and excitation"),
    ("mobilenet_v4", mobilenet_v4, "dynamo", None, "float32", "depthwise convolutions with ReLU"),
    ("segformer", segformer, "torchscript", None, "float32", "Resize, strided attention"),
    ("depth_anything", depth_anything, "dynamo", None, "float32", "transposed convolutions, Resize with aligned corners"),
    ("rt_detr", rt_detr, "torchscript", None, "float32", "GridSample, TopK, gathers"),
    ("clip_text", clip_text, "torchscript", None, "float32", "integer inputs, causal mask, ArgMax"),
    ("dinov3", dinov3, "dynamo", None, "float32", "rotary position embedding"),
    ("sam", sam, "torchscript", None, "float32", "windows with padding, decomposed relative positions"),
]


def strip(path: Path, described: bool) -> None:
    """Removes what describes the nodes: stack traces always, names of source modules and shapes of values unless `described`."""
    model = onnx.load(str(path))
    if not described:
        del model.graph.value_info[:]
    for item in [model, model.graph, *model.graph.node, *model.graph.value_info, *model.graph.input, *model.graph.output, *model.graph.initializer]:
        kept = [(entry.key, entry.value) for entry in item.metadata_props if described and entry.key.endswith("name_scopes")]
        del item.metadata_props[:]
        for key, value in kept:
            item.metadata_props.add(key=key, value=value)
        item.doc_string = ""
    if not described:
        shorten(model)
    Path(f"{path}.data").unlink(missing_ok=True)
    onnx.save(model, str(path), save_as_external_data=False)


def shorten(model: onnx.ModelProto) -> None:
    """Numbers nodes and values: the exporters' names, paths of modules, are longer than all else in a small model."""
    graph = model.graph
    names = {value.name: value.name for value in [*graph.input, *graph.output]} | {"": ""}
    if any(attribute.g.node or attribute.graphs for node in graph.node for attribute in node.attribute):
        return
    for tensor in graph.initializer:
        tensor.name = names.setdefault(tensor.name, f"c{len(names)}")
    for number, node in enumerate(graph.node):
        node.name = f"n{number}"
        for values in (node.input, node.output):
            values[:] = [names.setdefault(name, f"v{len(names)}") for name in values]


def quantize(path: Path, inputs) -> None:
    """Static quantisation by ONNX Runtime's own tool, calibrated on random images."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.batches = iter([{name: tensor.numpy() for name, tensor in inputs(4).items()}])

        def get_next(self):
            return next(self.batches, None)

    quant_pre_process(str(path), str(path))
    options = {"per_channel": True, "activation_type": QuantType.QInt8, "weight_type": QuantType.QInt8}
    quantize_static(str(path), str(path), Reader(), quant_format=QuantFormat.QDQ, **options)


def write(name: str, builder, exporter: str, opset: int | None, dtype: str, note: str) -> dict:
    torch.manual_seed(SEED)
    model, inputs, outputs = builder()
    model.eval()
    if isinstance(model, transformers.PreTrainedModel):
        model = Selected(model, outputs, list(inputs(1))).eval()
    disturb(model, name)
    if builder is depth_anything:
        # Its last layers are a ReLU's: keep some depths positive.
        model.model.head.conv3.bias.data.fill_(0.5)
        model.model.head.conv3.weight.data.mul_(4)
    calibrate(model, inputs(4))
    if dtype == "float16":
        model, full = model.half(), inputs

        def inputs(batch):
            return {name: tensor.half() for name, tensor in full(batch).items()}

    directory = ROOT / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    path = directory / "model.onnx"
    with torch.no_grad():
        export_model(Case(name, name, model, inputs, outputs), exporter, path, EXPORT_BATCH, opset)
    strip(path, name == DESCRIBED)
    if dtype == "int8":
        quantize(path, inputs)
        strip(path, name == DESCRIBED)
    onnx.checker.check_model(str(path))

    given = {name: tensor.numpy() for name, tensor in inputs(RUN_BATCH).items()}
    results = runtime(path, given)
    with torch.no_grad():
        exact = model.double()(*(tensor.double() if tensor.is_floating_point() else tensor for tensor in inputs(RUN_BATCH).values()))
    exact = exact if isinstance(exact, tuple) else (exact,)
    exact = {name: value.numpy() for name, value in zip(outputs, exact, strict=True)}
    error = difference(results, exact)
    assert error < {"float32": 1e-5, "float16": 5e-3, "int8": 0.3}[dtype], f"{name}: ONNX Runtime is {error} from torch"
    # Rows of the batch must differ, and no output may be nearly constant: such a golden would hide errors.
    for output, value in results.items():
        rows = value.astype(numpy.float64).reshape(RUN_BATCH, -1)
        assert rows.std(axis=1).min() > 0.02 * numpy.abs(rows).max(), f"{name}: {output} is nearly constant"
        assert numpy.abs(rows[0] - rows[1]).max() > 0.02 * numpy.abs(rows).max(), f"{name}: the rows of {output} are nearly equal"
    tensors = {f"input.{name}": value for name, value in given.items()} | {f"output.{name}": value for name, value in results.items()}
    save_file({name: numpy.ascontiguousarray(value) for name, value in tensors.items()}, directory / "golden.safetensors")
    loaded = onnx.load(str(path))
    opsets = {entry.domain or "ai.onnx": entry.version for entry in loaded.opset_import}
    return {
        "name": name, "exporter": exporter, "opset": opsets["ai.onnx"], "dtype": dtype, "note": note, "exported_batch": EXPORT_BATCH,
        "inputs": list(given), "outputs": list(results), "ops": sorted({node.op_type for node in loaded.graph.node}), "runtime_error": error,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("cases", nargs="*")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    entries = []
    for case in CASES:
        if arguments.cases and case[0] not in arguments.cases:
            continue
        entries.append(write(*case))
        size = sum(path.stat().st_size for path in (ROOT / case[0]).iterdir())
        print(f"{case[0]}: {size} bytes, ONNX Runtime is {entries[-1]['runtime_error']:.1e} from torch", flush=True)
    if not arguments.cases:
        for entry in entries:
            entry["runtime_error"] = float(f"{entry['runtime_error']:.0e}")
        (ROOT / "cases.json").write_text(json.dumps({"versions": VERSIONS, "cases": entries}, indent=1) + "\n")
    sys.exit(0)


if __name__ == "__main__":
    main()
