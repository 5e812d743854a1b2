//! The libraries' tensor names, as data for [`super::builder`].

/// Tensor names below the trunk's prefix. A layer's name stands for its `.weight` and `.bias`.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) patch: &'static str,
    /// The shapes of the tokens' and positions' tensors.
    pub(super) embeddings: Embeddings,
    pub(super) patch_norm: &'static str,
    pub(super) positions: &'static str,
    pub(super) class_token: &'static str,
    pub(super) distillation_token: &'static str,
    pub(super) registers: &'static str,
    pub(super) pre_norm: &'static str,
    /// Up to the block's number.
    pub(super) blocks: &'static str,
    pub(super) norm1: &'static str,
    pub(super) qkv: Qkv,
    /// The norms of queries and keys, and that of attention's result.
    pub(super) qk_norms: [&'static str; 2],
    pub(super) attention_norm: &'static str,
    pub(super) attention_output: &'static str,
    /// LayerScale's tensor itself.
    pub(super) scale1: &'static str,
    pub(super) norm2: &'static str,
    pub(super) fc1: &'static str,
    pub(super) fc2: &'static str,
    /// SwiGLU's gate and value, packed in one layer.
    pub(super) gate_and_value: &'static str,
    /// SwiGLU's gate and value in a layer each.
    pub(super) gate: &'static str,
    pub(super) value: &'static str,
    pub(super) gated_output: &'static str,
    pub(super) mlp_norm: &'static str,
    pub(super) scale2: &'static str,
    pub(super) norm: &'static str,
    pub(super) pooled_norm: &'static str,
    pub(super) pool: AttentionPool,
    pub(super) pooler: &'static str,
    /// Without the trunk's prefix.
    pub(super) projection: &'static str,
    pub(super) head: &'static str,
    pub(super) heads_of_two: [&'static str; 2],
}

/// How single tokens and the position table are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Embeddings {
    /// A token `[1, 1, D]`, positions `[1, N, D]`.
    Batched,
    /// A token `[D]`, positions `[N, D]`.
    Flat,
}

/// The projections to queries, keys and values.
#[derive(Clone, Copy, Debug)]
pub(super) enum Qkv {
    Packed(&'static str),
    Separate([&'static str; 3]),
}

/// The attention pooling's tensors.
#[derive(Debug)]
pub(super) struct AttentionPool {
    pub(super) query: &'static str,
    pub(super) projections: PoolProjections,
    pub(super) output: &'static str,
    pub(super) norm: &'static str,
    pub(super) fc1: &'static str,
    pub(super) fc2: &'static str,
}

/// The attention pooling's projections.
#[derive(Clone, Copy, Debug)]
pub(super) enum PoolProjections {
    /// A layer for the query, a layer for keys and values.
    QueryAndKv(&'static str, &'static str),
    /// One weight and one bias whose rows are the query's, the keys' and the values'; full names.
    Packed {
        weight: &'static str,
        bias: &'static str,
    },
}

/// timm's `VisionTransformer` and `VisionTransformerDistilled`.
pub(super) const TIMM: Names = Names {
    patch: "patch_embed.proj",
    embeddings: Embeddings::Batched,
    patch_norm: "patch_embed.norm",
    positions: "pos_embed",
    class_token: "cls_token",
    distillation_token: "dist_token",
    registers: "reg_token",
    pre_norm: "norm_pre",
    blocks: "blocks.",
    norm1: "norm1",
    qkv: Qkv::Packed("attn.qkv"),
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
    projection: "",
    head: "head",
    heads_of_two: ["head", "head_dist"],
};

/// transformers' ViT and DeiT.
pub(super) const VIT: Names = Names {
    patch: "embeddings.patch_embeddings.projection",
    embeddings: Embeddings::Batched,
    patch_norm: "",
    positions: "embeddings.position_embeddings",
    class_token: "embeddings.cls_token",
    distillation_token: "embeddings.distillation_token",
    registers: "embeddings.register_tokens",
    pre_norm: "",
    blocks: "encoder.layer.",
    norm1: "layernorm_before",
    qkv: Qkv::Separate([
        "attention.attention.query",
        "attention.attention.key",
        "attention.attention.value",
    ]),
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
    projection: "",
    head: "classifier",
    heads_of_two: ["cls_classifier", "distillation_classifier"],
};

/// transformers' DINOv2, with and without registers.
pub(super) const DINOV2: Names = Names {
    norm1: "norm1",
    norm2: "norm2",
    fc1: "mlp.fc1",
    fc2: "mlp.fc2",
    ..VIT
};

/// transformers' CLIP and SigLIP vision towers.
pub(super) const CLIP: Names = Names {
    patch: "embeddings.patch_embedding",
    embeddings: Embeddings::Flat,
    patch_norm: "",
    positions: "embeddings.position_embedding.weight",
    class_token: "embeddings.class_embedding",
    distillation_token: "",
    registers: "",
    // The library's own spelling.
    pre_norm: "pre_layrnorm",
    blocks: "encoder.layers.",
    norm1: "layer_norm1",
    qkv: Qkv::Separate(["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]),
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
    projection: "visual_projection",
    head: "classifier",
    heads_of_two: ["", ""],
};

const NO_POOL: AttentionPool = AttentionPool {
    query: "",
    projections: PoolProjections::QueryAndKv("", ""),
    output: "",
    norm: "",
    fc1: "",
    fc2: "",
};
