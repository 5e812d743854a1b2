//! Tensor names of decoders in the files of transformers, as data.

/// Names of tensors. The name of a layer or a norm covers its `.weight` and `.bias`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) embedding: &'static str,
    /// Learned positions.
    pub(crate) positions: &'static str,
    pub(crate) embedding_norm: &'static str,
    /// Prefix before the number of a block.
    pub(crate) blocks: &'static str,
    /// Norm after the blocks.
    pub(crate) final_norm: Option<&'static str>,
    pub(crate) own: AttentionNames,
    pub(crate) cross: AttentionNames,
    pub(crate) fc1: &'static str,
    pub(crate) fc2: &'static str,
    pub(crate) norm: &'static str,
    pub(crate) head: HeadNames,
}

/// Names of an attention layer, below a block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AttentionNames {
    pub(crate) query: &'static str,
    pub(crate) key: &'static str,
    pub(crate) value: &'static str,
    pub(crate) output: &'static str,
    /// Norm before the layer, or of the sum with the residual.
    pub(crate) norm: &'static str,
}

/// Names of the layers from channels to logits.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HeadNames {
    /// Layer and norm before the projection to logits.
    pub(crate) transform: Option<[&'static str; 2]>,
    /// Weight of the projection.
    pub(crate) weight: &'static str,
    /// Possible names of its bias. Empty if it has none.
    pub(crate) bias: &'static [&'static str],
}

/// `TrOCRForCausalLM` in a `VisionEncoderDecoderModel`.
pub(crate) const TROCR: Names = Names {
    embedding: "decoder.model.decoder.embed_tokens.weight",
    positions: "decoder.model.decoder.embed_positions.weight",
    embedding_norm: "decoder.model.decoder.layernorm_embedding",
    blocks: "decoder.model.decoder.layers.",
    final_norm: None,
    own: AttentionNames {
        query: "self_attn.q_proj",
        key: "self_attn.k_proj",
        value: "self_attn.v_proj",
        output: "self_attn.out_proj",
        norm: "self_attn_layer_norm",
    },
    cross: AttentionNames {
        query: "encoder_attn.q_proj",
        key: "encoder_attn.k_proj",
        value: "encoder_attn.v_proj",
        output: "encoder_attn.out_proj",
        norm: "encoder_attn_layer_norm",
    },
    fc1: "fc1",
    fc2: "fc2",
    norm: "final_layer_norm",
    head: HeadNames {
        transform: None,
        weight: "decoder.output_projection.weight",
        bias: &[],
    },
};

/// `MBartForCausalLM` in a `VisionEncoderDecoderModel`.
pub(crate) const MBART: Names = Names {
    final_norm: Some("decoder.model.decoder.layer_norm"),
    head: HeadNames {
        transform: None,
        weight: "decoder.lm_head.weight",
        bias: &[],
    },
    ..TROCR
};

/// `LlamaForCausalLM` in SmolVLM and Idefics3. It has no cross-attention.
pub(crate) const LLAMA: Names = Names {
    embedding: "model.text_model.embed_tokens.weight",
    positions: "",
    embedding_norm: "",
    blocks: "model.text_model.layers.",
    final_norm: Some("model.text_model.norm"),
    own: LLAMA_ATTENTION,
    cross: LLAMA_ATTENTION,
    fc1: "mlp.gate_proj",
    fc2: "mlp.down_proj",
    norm: "post_attention_layernorm",
    head: HeadNames {
        transform: None,
        weight: "lm_head.weight",
        bias: &[],
    },
};

const LLAMA_ATTENTION: AttentionNames = AttentionNames {
    query: "self_attn.q_proj",
    key: "self_attn.k_proj",
    value: "self_attn.v_proj",
    output: "self_attn.o_proj",
    norm: "input_layernorm",
};

/// `BlipTextLMHeadModel`.
pub(crate) const BLIP: Names = Names {
    embedding: "text_decoder.bert.embeddings.word_embeddings.weight",
    positions: "text_decoder.bert.embeddings.position_embeddings.weight",
    embedding_norm: "text_decoder.bert.embeddings.LayerNorm",
    blocks: "text_decoder.bert.encoder.layer.",
    final_norm: None,
    own: AttentionNames {
        query: "attention.self.query",
        key: "attention.self.key",
        value: "attention.self.value",
        output: "attention.output.dense",
        norm: "attention.output.LayerNorm",
    },
    cross: AttentionNames {
        query: "crossattention.self.query",
        key: "crossattention.self.key",
        value: "crossattention.self.value",
        output: "crossattention.output.dense",
        norm: "crossattention.output.LayerNorm",
    },
    fc1: "intermediate.dense",
    fc2: "output.dense",
    norm: "output.LayerNorm",
    head: HeadNames {
        transform: Some([
            "text_decoder.cls.predictions.transform.dense",
            "text_decoder.cls.predictions.transform.LayerNorm",
        ]),
        weight: "text_decoder.cls.predictions.decoder.weight",
        bias: &[
            "text_decoder.cls.predictions.bias",
            "text_decoder.cls.predictions.decoder.bias",
        ],
    },
};
