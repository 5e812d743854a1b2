use hipvit::ops::TokenScores;
use serde_json::json;

use super::rules::{GENERATION_CONFIG, Length};
use super::*;

fn config() -> Value {
    json!({
        "model_type": "vision-encoder-decoder",
        "encoder": {"model_type": "vit", "hidden_size": 32},
        "decoder": {
            "model_type": "trocr", "d_model": 24, "decoder_attention_heads": 2, "cross_attention_hidden_size": 32,
            "decoder_start_token_id": 2, "eos_token_id": 2, "pad_token_id": 1,
        },
        "num_beams": 4, "no_repeat_ngram_size": 3,
    })
}

#[test]
fn keys_come_from_the_files_in_the_order_of_transformers() {
    let directory = std::env::temp_dir();
    let spec = DecoderSpec::read(&directory, &config()).unwrap();
    assert_eq!((spec.encoder_width, spec.projects_encoder), (32, false));
    let Rules {
        start,
        ends,
        max_length,
        beams,
        repetition,
        ..
    } = spec.rules.clone();
    let expected = TokenScores {
        log: false,
        penalty: 1.0,
        ngram: 3,
    };
    assert_eq!(repetition, Some(expected));
    assert_eq!((start, &ends[..], beams.beams), (2, &[2][..], 4));
    assert_eq!((max_length, max_length.with_prompt(1)), (Length::New(20), 21));
    assert_eq!((spec.position(5, 0), spec.position_rows()), (2, 514));
    let mut other = config();
    other["decoder"]["cross_attention_hidden_size"] = Value::Null;
    other["eos_token_id"] = json!([5, 6]);
    other["max_length"] = json!(64);
    let spec = DecoderSpec::read(&directory, &other).unwrap();
    assert_eq!((spec.encoder_width, spec.projects_encoder), (32, true));
    assert_eq!(
        (&spec.rules.ends[..], spec.rules.max_length),
        (&[5, 6][..], Length::All(64))
    );
    // The file comes before the configuration, whose limits then do not apply.
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(
        directory.path().join(GENERATION_CONFIG),
        r#"{"max_new_tokens": 7, "eos_token_id": 9}"#,
    )
    .unwrap();
    let rules = DecoderSpec::read(directory.path(), &other).unwrap().rules;
    assert_eq!(
        (rules.max_length, &rules.ends[..], rules.beams.beams, rules.start),
        (Length::New(7), &[9][..], 1, 2)
    );
    assert_eq!(rules.repetition, None);
    other["decoder"]["use_learned_position_embeddings"] = json!(false);
    other["decoder"]["pad_token_id"] = json!(3);
    let spec = DecoderSpec::read(directory.path(), &other).unwrap();
    assert_eq!(
        [spec.position(5, 0), spec.position(5, 6), spec.position(3, 6)],
        [4, 10, 3]
    );
}

#[test]
fn lengths_count_the_prompt_where_the_files_do() {
    let directory = std::env::temp_dir();
    let mut files = config();
    files["decoder"]["max_position_embeddings"] = json!(40);
    let spec = DecoderSpec::read(&directory, &files).unwrap();
    let length = |new, prompt| spec.length(new, prompt).ok();
    assert_eq!([length(None, 1), length(None, 9)], [Some(21), Some(29)]);
    assert_eq!([length(None, 30), length(Some(31), 9)], [Some(40), Some(40)]);
    assert_eq!([length(Some(32), 9), length(None, 40)], [None, None]);
    files["max_length"] = json!(25);
    let spec = DecoderSpec::read(&directory, &files).unwrap();
    assert_eq!(
        (spec.length(None, 1).unwrap(), spec.length(None, 9).unwrap()),
        (25, 25)
    );
    let error = spec.length(None, 25).unwrap_err().to_string();
    assert!(error.contains("limit texts to 25"), "{error}");
    assert_eq!(spec.length(Some(3), 25).unwrap(), 28);
}

#[test]
fn donut_has_the_defaults_of_mbart() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = json!({
        "model_type": "vision-encoder-decoder",
        "encoder": {"model_type": "donut-swin", "embed_dim": 8, "depths": [2, 2, 2]},
        "decoder": {"model_type": "mbart", "d_model": 48},
    });
    let read = |config: &Value| DecoderSpec::read(directory.path(), config).unwrap();
    let spec = read(&config);
    assert_eq!(
        (spec.encoder_width, spec.projects_encoder, spec.context),
        (32, true, 1024)
    );
    assert!(spec.is_pre_norm && spec.has_embedding_norm && spec.rules.prompt_is_start);
    let Rules {
        start,
        ends,
        forced_end,
        hidden,
        ..
    } = spec.rules;
    assert_eq!(
        (start, ends, forced_end, hidden),
        (0, vec![2], Some(2), Some(vec![2, 1]))
    );
    config["decoder"]["forced_eos_token_id"] = Value::Null;
    config["decoder"]["pad_token_id"] = json!(7);
    let rules = read(&config).rules;
    assert_eq!((rules.forced_end, rules.hidden), (None, Some(vec![2, 7])));
    config["forced_eos_token_id"] = json!([4, 5]);
    let error = DecoderSpec::read(directory.path(), &config)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("`forced_eos_token_id` is a list of several"),
        "{error}"
    );
    // The file has the limits, and none of this.
    std::fs::write(directory.path().join(GENERATION_CONFIG), "{}").unwrap();
    assert_eq!(read(&config).rules.forced_end, None);
}

#[test]
fn decoders_of_type_llama_are_read_or_named() {
    let directory = tempfile::tempdir().unwrap();
    let config = json!({
        "model_type": "smolvlm", "image_token_id": 7, "scale_factor": 3,
        "vision_config": {"image_size": 100, "patch_size": 8, "hidden_size": 20},
        "text_config": {
            "model_type": "llama", "vocab_size": 50, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2,
            "bos_token_id": 1, "eos_token_id": 2, "rope_theta": 5000.0, "rope_scaling": null,
        },
    });
    let read = |config: &Value| DecoderSpec::read(directory.path(), config);
    let spec = read(&config).unwrap();
    let llama = spec.llama.unwrap();
    assert_eq!(
        (llama.head_dim, llama.kv_heads, llama.grid, llama.tile_tokens()),
        (8, 2, [12, 12], 16)
    );
    assert_eq!((llama.theta, llama.has_template), (5000.0, false));
    for (section, key, value, expected) in [
        (
            "text_config",
            "model_type",
            json!("mistral"),
            "`text_config.model_type` is \"mistral\"",
        ),
        (
            "text_config",
            "hidden_act",
            json!("gelu"),
            "`text_config.hidden_act` is \"gelu\"",
        ),
        (
            "text_config",
            "attention_bias",
            json!(true),
            "`text_config.attention_bias` is true",
        ),
        (
            "text_config",
            "rope_scaling",
            json!({"rope_type": "llama3"}),
            "is \"llama3\"",
        ),
        (
            "text_config",
            "rope_parameters",
            json!({"rope_type": "yarn"}),
            "is \"yarn\"",
        ),
        (
            "text_config",
            "num_key_value_heads",
            json!(3),
            "4 heads cannot be divided among 3",
        ),
        (
            "text_config",
            "head_dim",
            json!(7),
            "7 channels, which cannot be rotated",
        ),
        ("text_config", "vocab_size", json!(6), "`image_token_id` is 7"),
        (
            "vision_config",
            "patch_size",
            json!(10),
            "`scale_factor` is 3, but an image has 10 patches",
        ),
    ] {
        let mut other = config.clone();
        other[section][key] = value;
        let error = read(&other).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn what_is_not_supported_is_named() {
    let directory = std::env::temp_dir();
    let message = |config: &Value| DecoderSpec::read(&directory, config).unwrap_err().to_string();
    let mut vit = config();
    vit["model_type"] = json!("vit");
    assert!(message(&vit).contains("`model_type` is \"vit\""));
    let mut bart = config();
    bart["decoder"]["model_type"] = json!("bart");
    assert!(message(&bart).contains("`decoder.model_type` is \"bart\""));
    let mut heads = config();
    heads["decoder"]["decoder_attention_heads"] = json!(7);
    assert!(message(&heads).contains("24 channels cannot be divided among 7 heads"));
    let mut start = config();
    start["decoder"]["decoder_start_token_id"] = Value::Null;
    assert!(
        message(&start).contains("`decoder_start_token_id` is neither here nor in generation_config.json")
    );
    for (key, value) in [
        ("min_length", json!(5)),
        ("suppress_tokens", json!([1])),
        ("forced_bos_token_id", json!(2)),
    ] {
        let mut other = config();
        other[key] = value;
        assert!(
            message(&other).contains(&format!("`{key}` is not supported")),
            "{key}"
        );
    }
    let mut large = config();
    large["decoder"]["max_position_embeddings"] = json!(1 << 20);
    assert!(message(&large).contains("more than the maximum of 65536"));
    let mut padding = config();
    padding["decoder"]["use_learned_position_embeddings"] = json!(false);
    padding["decoder"]["pad_token_id"] = json!(4_000_000_000u32);
    assert!(message(&padding).contains("`pad_token_id` is 4000000000"));
    let mut first = config();
    first["decoder"]["decoder_start_token_id"] = json!(4_000_000_000u32);
    assert!(message(&first).contains("the first token is 4000000000"));
}
