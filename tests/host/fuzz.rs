//! Damaged inputs made from valid ones: images of every format, safetensors headers, configurations. Whatever
//! the result, nothing panics, allocations stay within the limits, and an image has its declared size.
//!
//! The seed is fixed for reproducible runs. `HIPVIT_FUZZ_CASES` sets the number of cases of each test, and
//! `HIPVIT_FUZZ_SEED` another seed: `HIPVIT_FUZZ_CASES=100000 cargo test --test suite host::fuzz::`.

use std::fs;
use std::path::PathBuf;

use allocation_counter::measure;
use hipvit::image::{DecodeOptions, Limits, decode};
use hipvit::{Device, Session};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use serde_json::Value;

use crate::support::at;

/// Memory that decoders take for any image size: windows of decompressors, tables of codes, rows of a few
/// KiB.
const CONSTANT: u64 = 2 << 20;

fn run<S: Strategy>(cases: u32, strategy: S, test: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let variable = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let config = Config {
        cases: variable("HIPVIT_FUZZ_CASES").map_or(cases, |cases| cases as u32),
        rng_seed: RngSeed::Fixed(variable("HIPVIT_FUZZ_SEED").unwrap_or(12)),
        failure_persistence: None,
        ..Config::default()
    };
    TestRunner::new(config).run(&strategy, test).unwrap();
}

/// A change of a file's bytes.
#[derive(Clone, Debug)]
enum Change {
    Cut(Index),
    Flip(Index, u8),
    /// A number of two or four bytes near the beginning, where the sizes are, or near the end, where TIFF has them.
    Number {
        at: Index,
        from_end: bool,
        value: u32,
        wide: bool,
        big_endian: bool,
    },
    /// A part of the file over another one.
    Copy {
        from: Index,
        to: Index,
        length: u8,
    },
}

/// Numbers at which sizes overflow, vanish or become very large.
const EXTREMES: [u32; 14] = [
    0,
    1,
    2,
    255,
    256,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x1_0000,
    0xFF_FFFF,
    0x7FFF_FFFF,
    0x8000_0000,
    0xFFFF_FFFE,
    u32::MAX,
];

fn change() -> impl Strategy<Value = Change> {
    let number = (
        any::<Index>(),
        any::<bool>(),
        prop::sample::select(&EXTREMES[..]),
        any::<bool>(),
        any::<bool>(),
    );
    prop_oneof![
        1 => any::<Index>().prop_map(Change::Cut),
        3 => (any::<Index>(), any::<u8>()).prop_map(|(at, bits)| Change::Flip(at, bits)),
        5 => number.prop_map(|(at, from_end, value, wide, big_endian)| Change::Number { at, from_end, value, wide, big_endian }),
        1 => (any::<Index>(), any::<Index>(), any::<u8>()).prop_map(|(from, to, length)| Change::Copy { from, to, length }),
    ]
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let length = bytes.len();
        match self {
            Self::Cut(at) => bytes.truncate(at.index(length)),
            Self::Flip(at, bits) => bytes[at.index(length)] ^= bits,
            Self::Number {
                at,
                from_end,
                value,
                wide,
                big_endian,
            } => {
                let near = at.index(length.min(160));
                let at = if *from_end { length - 1 - near } else { near };
                let number = match (wide, big_endian) {
                    (true, true) => value.to_be_bytes().to_vec(),
                    (true, false) => value.to_le_bytes().to_vec(),
                    (false, true) => (*value as u16).to_be_bytes().to_vec(),
                    (false, false) => (*value as u16).to_le_bytes().to_vec(),
                };
                bytes[at..]
                    .iter_mut()
                    .zip(number)
                    .for_each(|(byte, new)| *byte = new);
            }
            Self::Copy {
                from,
                to,
                length: part,
            } => {
                let (from, to) = (from.index(length), to.index(length));
                let part = usize::from(*part).min(length - from.max(to));
                bytes.copy_within(from..from + part, to);
            }
        }
    }
}

/// Recomputes the chunks' checksums, which would otherwise hide most changes.
fn mend_png(bytes: &mut [u8]) {
    let mut at = 8;
    while let Some(length) = bytes.get(at..at + 4) {
        let length = u32::from_be_bytes([length[0], length[1], length[2], length[3]]) as usize;
        let Some(end) = at.checked_add(8 + length).filter(|end| end + 4 <= bytes.len()) else {
            return;
        };
        let sum = crc32fast::hash(&bytes[at + 4..end]);
        bytes[end..end + 4].copy_from_slice(&sum.to_be_bytes());
        at = end + 4;
    }
}

fn samples() -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<PathBuf> = [
        "tests/data/image/samples",
        "tests/data/image/damaged",
        "tests/data/robustness",
    ]
    .iter()
    .flat_map(|folder| fs::read_dir(at(folder)).unwrap())
    .map(|entry| entry.unwrap().path())
    .collect();
    files.sort();
    files
        .into_iter()
        .map(|file| (file.clone(), fs::read(file).unwrap()))
        .filter(|(_, bytes)| bytes.len() < 20_000)
        .collect()
}

fn decodes_within(name: &str, bytes: &[u8], limits: &Limits, exif: bool) -> Result<(), TestCaseError> {
    let mut result = None;
    let options = DecodeOptions::from(limits).exif_orientation(exif);
    let info = measure(|| result = Some(decode(name, bytes, options)));
    prop_assert!(
        info.bytes_max <= limits.max_memory + CONSTANT,
        "{name}: {} bytes where {} are allowed",
        info.bytes_max,
        limits.max_memory
    );
    match result {
        Some(Ok(image)) => {
            prop_assert!((image.width as u64) * (image.height as u64) <= limits.max_pixels);
            prop_assert_eq!(image.data.len(), image.width * image.height * 3);
        }
        Some(Err(error)) => {
            let text = error.to_string();
            prop_assert!(text.starts_with(name) && !text.contains('\n'), "{}", text);
            prop_assert!(!text.contains("the decoder failed"), "{}", text);
        }
        None => unreachable!(),
    }
    Ok(())
}

#[test]
fn images_that_lie() {
    let samples = samples();
    let strategy = (
        any::<Index>(),
        prop::collection::vec(change(), 1..5),
        12..28_u32,
        8..24_u32,
        any::<bool>(),
    );
    run(6000, strategy, |(file, changes, memory, pixels, exif)| {
        let (path, bytes) = &samples[file.index(samples.len())];
        let mut bytes = bytes.clone();
        changes.iter().for_each(|change| change.apply(&mut bytes));
        if bytes.starts_with(b"\x89PNG") {
            mend_png(&mut bytes);
        }
        let limits = Limits {
            max_pixels: 1 << pixels,
            max_memory: 1 << memory,
        };
        decodes_within(path.file_name().unwrap().to_str().unwrap(), &bytes, &limits, exif)
    });
}

/// The estimated memory of every sample is never below the actual one, for every limit.
#[test]
fn valid_images_stay_within_any_limit() {
    for (path, bytes) in samples() {
        for memory in 10..24 {
            let limits = Limits {
                max_memory: 1 << memory,
                ..Limits::default()
            };
            for exif in [false, true] {
                decodes_within(path.file_name().unwrap().to_str().unwrap(), &bytes, &limits, exif).unwrap();
            }
        }
    }
}

/// The files of a model in memory.
struct Files {
    config: Vec<u8>,
    weights: Vec<u8>,
    preprocessor: Option<Vec<u8>>,
}

fn models() -> Vec<Files> {
    [
        "hf_dinov2",
        "hf_siglip",
        "hf_vit",
        "timm_deit",
        "timm_dinov2_reg4",
    ]
    .iter()
    .map(|name| {
        let file = |file: &str| fs::read(at("tests/golden").join(name).join(file));
        Files {
            config: file("config.json").unwrap(),
            weights: file("model.safetensors").unwrap(),
            preprocessor: file("preprocessor_config.json").ok(),
        }
    })
    .collect()
}

/// More than these models, their graphs, and their position embeddings at the largest allowed size take.
const MODEL_BYTES: u64 = 512 << 20;

fn loads(config: &[u8], weights: Vec<u8>, preprocessor: Option<&[u8]>) -> Result<(), TestCaseError> {
    let builder = Session::builder().device(Device::Cpu).threads(1).batch(1);
    let mut result = None;
    let info = measure(|| result = Some(builder.from_bytes(config, weights, preprocessor)));
    prop_assert!(info.bytes_max <= MODEL_BYTES, "{} bytes", info.bytes_max);
    if let Some(Err(error)) = result {
        let text = error.to_string();
        prop_assert!(!text.contains('\n'), "{}", text);
    }
    Ok(())
}

#[test]
fn safetensors_headers_that_lie() {
    let models = models();
    let strategy = (
        any::<Index>(),
        prop::collection::vec(change(), 1..4),
        any::<Option<u16>>(),
    );
    run(300, strategy, |(model, changes, length)| {
        let model = &models[model.index(models.len())];
        let mut weights = model.weights.clone();
        let stated = u64::from_le_bytes(weights[..8].try_into().unwrap()) as usize;
        let mut header = weights[8..8 + stated].to_vec();
        changes.iter().for_each(|change| change.apply(&mut header));
        // Of the header's true length, so that its content is read, or of any.
        let stated_now = length.map_or(header.len() as u64, u64::from);
        weights.splice(..8 + stated, stated_now.to_le_bytes().into_iter().chain(header));
        loads(&model.config, weights, model.preprocessor.as_deref())
    });
}

/// Generates values of every kind and of extreme sizes.
fn value() -> impl Strategy<Value = Value> {
    let texts = [
        "null",
        "true",
        "0",
        "1",
        "-1",
        "3",
        "1e308",
        "1e-308",
        "0.5",
        "4096",
        "65536",
        "1048576",
        "4294967296",
        "9223372036854775807",
        "18446744073709551615",
        "\"\"",
        "\"gelu\"",
        "[]",
        "{}",
        "[1, 2, 3]",
        "[4096, 4096]",
        "{\"height\": 4096, \"width\": 1}",
        "{\"shortest_edge\": 1000000}",
        "[[[[[[[[]]]]]]]]",
    ];
    prop::sample::select(texts.to_vec()).prop_map(|text| serde_json::from_str(text).unwrap())
}

/// Replaces, or removes, one value anywhere in `document`.
fn replace(document: &mut Value, at: &Index, new: Option<Value>) {
    fn pointers(value: &Value, here: String, all: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    let key = key.replace('~', "~0").replace('/', "~1");
                    pointers(value, format!("{here}/{key}"), all);
                }
            }
            Value::Array(list) => {
                for (index, value) in list.iter().enumerate() {
                    pointers(value, format!("{here}/{index}"), all);
                }
            }
            _ => {}
        }
        all.push(here);
    }
    let mut all = Vec::new();
    pointers(document, String::new(), &mut all);
    let pointer = &all[at.index(all.len())];
    match (new, pointer.rsplit_once('/')) {
        (None, Some((parent, key))) => {
            if let Some(map) = document.pointer_mut(parent).and_then(Value::as_object_mut) {
                map.remove(key);
            }
        }
        (new, _) => {
            if let Some(place) = document.pointer_mut(pointer) {
                *place = new.unwrap_or(Value::Null);
            }
        }
    }
}

#[test]
fn configurations_that_lie() {
    let models = models();
    let edits = prop::collection::vec(
        (
            any::<bool>(),
            any::<Index>(),
            prop::option::weighted(0.9, value()),
        ),
        1..4,
    );
    run(
        500,
        (any::<Index>(), edits, prop::option::weighted(0.2, change())),
        |(model, edits, change)| {
            let model = &models[model.index(models.len())];
            let mut config: Value = serde_json::from_slice(&model.config).unwrap();
            let mut preprocessor: Option<Value> = model
                .preprocessor
                .as_deref()
                .map(|bytes| serde_json::from_slice(bytes).unwrap());
            for (of_preprocessor, at, new) in edits {
                let document = match &mut preprocessor {
                    Some(document) if of_preprocessor => document,
                    _ => &mut config,
                };
                replace(document, &at, new);
            }
            let mut config = serde_json::to_vec(&config).unwrap();
            if let Some(change) = change {
                change.apply(&mut config);
            }
            let preprocessor = preprocessor.map(|document| serde_json::to_vec(&document).unwrap());
            loads(&config, model.weights.clone(), preprocessor.as_deref())
        },
    );
}
