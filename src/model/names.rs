//! Tensor names of the libraries, as data for [`super::builder`].

/// Tensor names below the trunk's prefix. The name of a layer covers its `.weight` and `.bias`.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) patch: &'static str,
    /// Shapes of the tensors of tokens and positions.
    pub(super) embeddings: Embeddings,
    pub(super) patch_norm: &'static str,
    pub(super) positions: &'static str,
    pub(super) class_token: &'static str,
    pub(super) distillation_token: &'static str,
    pub(super) registers: &'static str,
    /// Tables of relative position biases, per block and shared by all blocks.
    pub(super) relative: &'static str,
    pub(super) shared_relative: &'static str,
    /// Network of Swin V2's bias.
    pub(super) position_network: &'static str,
    /// Full name of the logarithm of Swin V2's temperature.
    pub(super) logit_scale: &'static str,
    /// Layers between the stages of Swin.
    pub(super) merging: Merging,
    /// Learned frequencies of the rotary position embedding.
    pub(super) rotary: &'static str,
    pub(super) pre_norm: &'static str,
    /// Prefix before the number of a block.
    pub(super) blocks: &'static str,
    pub(super) norm1: &'static str,
    pub(super) qkv: Qkv,
    /// Biases of packed queries and values, if keys have none.
    pub(super) qv_biases: [&'static str; 2],
    /// Norms of queries and keys, and of the result of attention.
    pub(super) qk_norms: [&'static str; 2],
    pub(super) attention_norm: &'static str,
    pub(super) attention_output: &'static str,
    /// Full name of LayerScale's tensor.
    pub(super) scale1: &'static str,
    pub(super) norm2: &'static str,
    pub(super) fc1: &'static str,
    pub(super) fc2: &'static str,
    /// Gate and value of SwiGLU, packed in one layer.
    pub(super) gate_and_value: &'static str,
    /// Gate and value of SwiGLU in one layer each.
    pub(super) gate: &'static str,
    pub(super) value: &'static str,
    pub(super) gated_output: &'static str,
    pub(super) mlp_norm: &'static str,
    pub(super) scale2: &'static str,
    pub(super) norm: &'static str,
    pub(super) pooled_norm: &'static str,
    pub(super) pool: AttentionPool,
    pub(super) pooler: &'static str,
    pub(super) projection: Projection,
    pub(super) head: &'static str,
    pub(super) heads_of_two: [&'static str; 2],
}

/// Layers that merge patches, below the prefix of a stage.
#[derive(Clone, Copy, Debug)]
pub(super) struct Merging {
    pub(super) norm: &'static str,
    pub(super) projection: &'static str,
}

const MERGING: Merging = Merging {
    norm: "downsample.norm",
    projection: "downsample.reduction",
};

/// Storage of single tokens and of the position table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Embeddings {
    /// A token `[1, 1, D]`, positions `[1, N, D]`.
    Batched,
    /// A token `[D]`, positions `[N, D]`.
    Flat,
    /// A token `[1, 1, D]`, and a [table of a grid](super::positions::GridTable). The patch projection is a linear layer, `[D, h·w·3]`.
    Grid,
}

/// Projections to queries, keys and values.
#[derive(Clone, Copy, Debug)]
pub(super) enum Qkv {
    Packed(&'static str),
    /// Full names of one weight and one bias.
    PackedTensors {
        weight: &'static str,
        bias: &'static str,
    },
    Separate([&'static str; 3]),
}

/// Projection into the space that images and texts share, without the trunk's prefix.
#[derive(Clone, Copy, Debug)]
pub(super) enum Projection {
    Layer(&'static str),
    /// One tensor, `[channels, width]`: the transposed weight of a layer.
    Matrix(&'static str),
}

/// Tensors of attention pooling.
#[derive(Debug)]
pub(super) struct AttentionPool {
    pub(super) query: &'static str,
    pub(super) projections: PoolProjections,
    pub(super) output: &'static str,
    pub(super) norm: &'static str,
    pub(super) fc1: &'static str,
    pub(super) fc2: &'static str,
}

/// Projections of attention pooling.
#[derive(Clone, Copy, Debug)]
pub(super) enum PoolProjections {
    /// One layer for the query, and one for keys and values.
    QueryAndKv(&'static str, &'static str),
    /// One layer for keys and one for values. The query has none.
    KeyAndValue(&'static str, &'static str),
    /// Full names of one weight and one bias, with the rows of query, keys and values.
    Packed {
        weight: &'static str,
        bias: &'static str,
    },
}

/// Names in timm's `VisionTransformer` and `VisionTransformerDistilled`.
pub(super) const TIMM: Names = Names {
    patch: "patch_embed.proj",
    embeddings: Embeddings::Batched,
    patch_norm: "patch_embed.norm",
    positions: "pos_embed",
    class_token: "cls_token",
    distillation_token: "dist_token",
    registers: "reg_token",
    relative: "attn.relative_position_bias_table",
    shared_relative: "rel_pos_bias.relative_position_bias_table",
    position_network: "attn.cpb_mlp",
    logit_scale: "attn.logit_scale",
    merging: MERGING,
    rotary: "rope.freqs",
    pre_norm: "norm_pre",
    blocks: "blocks.",
    norm1: "norm1",
    qkv: Qkv::Packed("attn.qkv"),
    qv_biases: ["attn.q_bias", "attn.v_bias"],
    qk_norms: ["attn.q_norm", "attn.k_norm"],
    attention_norm: "attn.norm",
    attention_output: "attn.proj",
    scale1: "ls1.gamma",
    norm2: "norm2",
    fc1: "mlp.fc1",
    fc2: "mlp.fc2",
    gate_and_value: "mlp.fc1",
    gate: "mlp.fc1_g",
    value: "mlp.fc1_x",
    gated_output: "mlp.fc2",
    mlp_norm: "mlp.norm",
    scale2: "ls2.gamma",
    norm: "norm",
    pooled_norm: "fc_norm",
    pool: AttentionPool {
        query: "attn_pool.latent",
        projections: PoolProjections::QueryAndKv("attn_pool.q", "attn_pool.kv"),
        output: "attn_pool.proj",
        norm: "attn_pool.norm",
        fc1: "attn_pool.mlp.fc1",
        fc2: "attn_pool.mlp.fc2",
    },
    pooler: "",
    projection: Projection::Layer(""),
    head: "head",
    heads_of_two: ["head", "head_dist"],
};

/// Names in timm's `Eva` and `Beit`, with queries, keys and values in one layer.
pub(super) const EVA: Names = Names {
    scale1: "gamma_1",
    scale2: "gamma_2",
    ..TIMM
};

/// Names in timm's `Eva` and `Beit`, with one layer each for queries, keys and values.
pub(super) const EVA_SEPARATE: Names = Names {
    qkv: Qkv::Separate(["attn.q_proj", "attn.k_proj", "attn.v_proj"]),
    ..EVA
};

/// Names in timm's `MlpMixer`. `builder/blocks/mixer.rs` has the names inside a block.
pub(super) const MIXER: Names = Names {
    patch: "stem.proj",
    patch_norm: "stem.norm",
    fc1: "fc1",
    fc2: "fc2",
    gate_and_value: "fc1",
    gated_output: "fc2",
    ..TIMM
};

/// Names in timm's `NaFlexVit`.
pub(super) const NAFLEX: Names = Names {
    patch: "embeds.proj",
    embeddings: Embeddings::Grid,
    patch_norm: "embeds.norm",
    positions: "embeds.pos_embed",
    class_token: "embeds.cls_token",
    registers: "embeds.reg_token",
    ..TIMM
};

/// Names in timm's `SwinTransformer` and `SwinTransformerV2`.
pub(super) const SWIN_TIMM: Names = Names {
    blocks: "layers.",
    head: "head.fc",
    ..TIMM
};

/// Names in timm's `Hiera`. `builder/hiera.rs` has those of its pooled blocks.
pub(super) const HIERA: Names = Names {
    pooled_norm: "head.norm",
    head: "head.fc",
    ..TIMM
};

/// Names in transformers' ViT and DeiT.
pub(super) const VIT: Names = Names {
    patch: "embeddings.patch_embeddings.projection",
    embeddings: Embeddings::Batched,
    patch_norm: "",
    positions: "embeddings.position_embeddings",
    class_token: "embeddings.cls_token",
    distillation_token: "embeddings.distillation_token",
    registers: "embeddings.register_tokens",
    relative: "",
    shared_relative: "",
    position_network: "",
    logit_scale: "",
    merging: MERGING,
    rotary: "",
    pre_norm: "",
    blocks: "encoder.layer.",
    norm1: "layernorm_before",
    qkv: Qkv::Separate([
        "attention.attention.query",
        "attention.attention.key",
        "attention.attention.value",
    ]),
    qv_biases: ["", ""],
    qk_norms: ["", ""],
    attention_norm: "",
    attention_output: "attention.output.dense",
    scale1: "layer_scale1.lambda1",
    norm2: "layernorm_after",
    fc1: "intermediate.dense",
    fc2: "output.dense",
    gate_and_value: "mlp.weights_in",
    gate: "",
    value: "",
    gated_output: "mlp.weights_out",
    mlp_norm: "",
    scale2: "layer_scale2.lambda1",
    norm: "layernorm",
    pooled_norm: "",
    pool: NO_POOL,
    pooler: "pooler.dense",
    projection: Projection::Layer(""),
    head: "classifier",
    heads_of_two: ["cls_classifier", "distillation_classifier"],
};

/// Names in transformers' BEiT, as in the hub's files.
pub(super) const BEIT: Names = Names {
    relative: "attention.attention.relative_position_bias.relative_position_bias_table",
    shared_relative: "encoder.relative_position_bias.relative_position_bias_table",
    scale1: "lambda_1",
    scale2: "lambda_2",
    pooled_norm: "pooler.layernorm",
    ..VIT
};

/// Names in transformers' Swin and Swin V2, as in the hub's files.
pub(super) const SWIN: Names = Names {
    patch_norm: "embeddings.norm",
    relative: "attention.self.relative_position_bias_table",
    position_network: "attention.self.continuous_position_bias_mlp",
    logit_scale: "attention.self.logit_scale",
    blocks: "encoder.layers.",
    qkv: Qkv::Separate([
        "attention.self.query",
        "attention.self.key",
        "attention.self.value",
    ]),
    ..VIT
};

/// Names in transformers' DINOv2, with and without registers.
pub(super) const DINOV2: Names = Names {
    norm1: "norm1",
    norm2: "norm2",
    fc1: "mlp.fc1",
    fc2: "mlp.fc2",
    ..VIT
};

/// Names in transformers' DINOv3, as in the hub's files.
pub(super) const DINOV3: Names = Names {
    patch: "embeddings.patch_embeddings",
    blocks: "layer.",
    qkv: Qkv::Separate(["attention.q_proj", "attention.k_proj", "attention.v_proj"]),
    attention_output: "attention.o_proj",
    fc1: "mlp.up_proj",
    fc2: "mlp.down_proj",
    gate: "mlp.gate_proj",
    value: "mlp.up_proj",
    gated_output: "mlp.down_proj",
    norm: "norm",
    ..DINOV2
};

/// Names in transformers' DINOv3 since release 5.
pub(super) const DINOV3_NESTED: Names = Names {
    blocks: "model.layer.",
    ..DINOV3
};

/// Names in transformers' vision towers of CLIP and SigLIP.
pub(super) const CLIP: Names = Names {
    patch: "embeddings.patch_embedding",
    embeddings: Embeddings::Flat,
    patch_norm: "",
    positions: "embeddings.position_embedding.weight",
    class_token: "embeddings.class_embedding",
    distillation_token: "",
    registers: "",
    relative: "",
    shared_relative: "",
    position_network: "",
    logit_scale: "",
    merging: MERGING,
    rotary: "",
    // The library's own spelling.
    pre_norm: "pre_layrnorm",
    blocks: "encoder.layers.",
    norm1: "layer_norm1",
    qkv: Qkv::Separate(["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]),
    qv_biases: ["", ""],
    qk_norms: ["", ""],
    attention_norm: "",
    attention_output: "self_attn.out_proj",
    scale1: "",
    norm2: "layer_norm2",
    fc1: "mlp.fc1",
    fc2: "mlp.fc2",
    gate_and_value: "",
    gate: "",
    value: "",
    gated_output: "",
    mlp_norm: "",
    scale2: "",
    norm: "post_layernorm",
    pooled_norm: "post_layernorm",
    pool: AttentionPool {
        query: "head.probe",
        projections: PoolProjections::Packed {
            weight: "head.attention.in_proj_weight",
            bias: "head.attention.in_proj_bias",
        },
        output: "head.attention.out_proj",
        norm: "head.layernorm",
        fc1: "head.mlp.fc1",
        fc2: "head.mlp.fc2",
    },
    pooler: "",
    projection: Projection::Layer("visual_projection"),
    head: "classifier",
    heads_of_two: ["", ""],
};

/// Names in the encoder of transformers' BLIP.
pub(super) const BLIP: Names = Names {
    embeddings: Embeddings::Batched,
    positions: "embeddings.position_embedding",
    qkv: Qkv::Packed("self_attn.qkv"),
    attention_output: "self_attn.projection",
    ..CLIP
};

/// Names in transformers' text towers of CLIP and SigLIP.
pub(super) const CLIP_TEXT: Names = Names {
    norm: "final_layer_norm",
    ..CLIP
};

/// Names in open_clip's vision tower.
pub(super) const OPEN_CLIP: Names = Names {
    patch: "conv1",
    positions: "positional_embedding",
    class_token: "class_embedding",
    pre_norm: "ln_pre",
    blocks: "transformer.resblocks.",
    norm1: "ln_1",
    qkv: Qkv::PackedTensors {
        weight: "attn.in_proj_weight",
        bias: "attn.in_proj_bias",
    },
    attention_output: "attn.out_proj",
    scale1: "ls_1.gamma",
    norm2: "ln_2",
    fc1: "mlp.c_fc",
    fc2: "mlp.c_proj",
    scale2: "ls_2.gamma",
    norm: "ln_post",
    pooled_norm: "ln_post",
    pool: NO_POOL,
    projection: Projection::Matrix("visual.proj"),
    head: "",
    ..CLIP
};

/// Names in open_clip's text tower.
pub(super) const OPEN_CLIP_TEXT: Names = Names {
    norm: "ln_final",
    ..OPEN_CLIP
};

/// Names in transformers' AIMv2.
pub(super) const AIMV2: Names = Names {
    patch: "embeddings.patch_embed",
    patch_norm: "embeddings.rms_norm",
    norm1: "rms_norm1",
    qkv: Qkv::Separate(["attention.q_proj", "attention.k_proj", "attention.v_proj"]),
    attention_output: "attention.out_proj",
    norm2: "rms_norm2",
    gate: "ffn.gate_proj",
    value: "ffn.up_proj",
    gated_output: "ffn.down_proj",
    norm: "rms_norm",
    pool: AttentionPool {
        query: "head.cls_token",
        projections: PoolProjections::KeyAndValue("head.k_proj", "head.v_proj"),
        output: "head.output_proj",
        ..NO_POOL
    },
    ..CLIP
};

const NO_POOL: AttentionPool = AttentionPool {
    query: "",
    projections: PoolProjections::QueryAndKv("", ""),
    output: "",
    norm: "",
    fc1: "",
    fc2: "",
};
