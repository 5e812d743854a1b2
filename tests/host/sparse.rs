//! `hipvit quantize --sparse 2:4`: its output loads, is as accurate as possible, and is refused if damaged.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use hipvit::evaluate::{LabelledSet, evaluate};
use hipvit::image::{Limits, RgbImage};
use hipvit::model::{self, LoadOptions};
use hipvit::{DType, Device, Session};
use hipvit_quantize::{Options, Precision, Report, Sparsity, quantize};
use safetensors::Dtype;
use serde_json::{Value, json};

use crate::support::at;
use crate::support::program::{hipvit, stderr, stdout};
use crate::support::quantize::{Tensors, difference, digits, on_cpu, outputs, refused, rewrite};

const LAYER: &str = "blocks.0.attn.qkv";

fn sparse(precision: Precision) -> Options {
    Options {
        precision,
        sparsity: Some(Sparsity::TwoOfFour),
        ..Options::default()
    }
}

fn pruned(model: Option<&Path>, directory: &Path) -> Report {
    quantize(model, directory, sparse(Precision::Full), []).unwrap()
}

fn images() -> Vec<RgbImage> {
    let decode = |(source, _): (hipvit::pipeline::Source, _)| source.decode(Limits::default()).unwrap();
    digits().into_iter().map(decode).collect()
}

#[test]
fn the_correction_keeps_accuracy_on_held_out_images() {
    let dir = tempfile::tempdir().unwrap();
    let images = images();
    let full = Session::builder().device(Device::Cpu).tinyvit32().unwrap();
    // The correction sees the first half, errors and accuracy are of the second.
    let half = images.len() / 2;
    let expected = outputs(&full, &images[half..]);
    let of = |name: &str, seen: usize| {
        let out = dir.path().join(name);
        let calibration = images[..seen].iter().cloned().map(Ok);
        let report = quantize(None, &out, sparse(Precision::Full), calibration).unwrap();
        assert_eq!((report.images, report.quantized), (seen, 0));
        assert!(report.unquantized.is_empty() && report.unpruned.is_empty());
        let session = on_cpu(&out);
        let sparsity = session.info().sparsity.clone().unwrap();
        assert_eq!(Some(&sparsity), report.sparsity.as_ref());
        // In f32, 17/32 and 16 bytes for each shape.
        assert_eq!(sparsity.weights, 4 * full.info().depth);
        let expected_bytes = sparsity.dense_bytes * 17 / 32 + 16 * sparsity.weights as u64;
        assert_eq!(sparsity.packed_bytes, expected_bytes);
        assert_eq!(
            report.bytes_before - report.bytes_after,
            sparsity.dense_bytes - sparsity.packed_bytes
        );
        assert_eq!(session.info().parameters, full.info().parameters);
        let mut held_out = LabelledSet::default();
        for (source, class) in digits().into_iter().skip(half) {
            held_out.push(source, class);
        }
        let result = evaluate(&session, held_out, Limits::default(), |item| {
            assert!(item.is_ok());
        })
        .unwrap();
        let (error, _) = difference(&expected, &outputs(&session, &images[half..]));
        println!(
            "{name}: logit error {:.1} %, {} of {} right",
            100.0 * error,
            result.correct,
            result.images
        );
        (error, result.correct)
    };
    let (by_magnitude, by_error) = (of("magnitude", 0), of("corrected", half));
    assert!(by_error.0 < 0.8 * by_magnitude.0, "{by_error:?} {by_magnitude:?}");
    assert!(by_error.1 >= by_magnitude.1, "{by_error:?} {by_magnitude:?}");
}

#[test]
fn two_of_each_four_weights_are_zero() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("model");
    pruned(None, &out);
    let [before, after] = [None, Some(&out)].map(|path| {
        let options = LoadOptions::default();
        path.map_or_else(|| model::tinyvit32(&options), |path| model::load(path, &options))
            .unwrap()
    });
    let mut count = 0;
    for (before, after) in before.graph.values().iter().zip(after.graph.values()) {
        let (Some(full), Some(sparse)) = (&before.constant, &after.constant) else {
            continue;
        };
        let (full, sparse) = (full.to_f32(), sparse.to_f32());
        if full == sparse {
            continue;
        }
        count += 1;
        assert!(
            before.name.ends_with(".weight") && before.name.starts_with("blocks."),
            "{}",
            before.name
        );
        for (full, sparse) in full.chunks(4).zip(sparse.chunks(4)) {
            let kept: Vec<usize> = (0..4).filter(|&i| sparse[i] != 0.0).collect();
            assert!(kept.len() <= 2, "{sparse:?}");
            for &i in &kept {
                assert_eq!(sparse[i], full[i]);
                let larger = (0..4).filter(|&j| full[j].abs() > full[i].abs());
                assert!(larger.count() < 2, "{full:?} {sparse:?}");
            }
        }
    }
    assert_eq!(count, 4 * after.info.depth);
}

#[test]
fn every_family_and_type_is_packed_and_read() {
    let dir = tempfile::tempdir().unwrap();
    for (case, bits) in [
        ("timm_vit_f16", 16),
        ("timm_vit_bf16", 16),
        ("hf_vit", 32),
        ("timm_eva02", 32),
        ("timm_mixer", 32),
        ("hf_siglip", 32),
    ] {
        let out = dir.path().join(case);
        let report = pruned(Some(&at("tests/golden").join(case)), &out);
        let sparsity = report.sparsity.unwrap();
        assert!(sparsity.weights > 0, "{case}");
        // Half the values and a bit for each; where the columns are an odd number of fours, half a byte more a row.
        let least = sparsity.dense_bytes * (bits / 2 + 1) / bits;
        let rest = sparsity.packed_bytes - 16 * sparsity.weights as u64 - least;
        assert!(rest <= sparsity.dense_bytes / 64, "{case}: {sparsity:?}");
        let before = model::load(&at("tests/golden").join(case), &LoadOptions::default()).unwrap();
        let after = model::load(&out, &LoadOptions::default()).unwrap();
        assert_eq!(before.info.parameters, after.info.parameters);
        let dtypes = |model: &model::Model| -> Vec<DType> {
            model.graph.values().iter().map(|value| value.dtype).collect()
        };
        assert_eq!(dtypes(&before), dtypes(&after), "{case}");
    }
}

#[test]
fn eight_bits_are_packed_too() {
    let dir = tempfile::tempdir().unwrap();
    let images = images();
    let full = dir.path().join("full");
    pruned(None, &full);
    let expected = outputs(&on_cpu(&full), &images[..64]);
    for precision in [Precision::Int8, Precision::Fp8] {
        let out = dir.path().join(precision.name());
        let report = quantize(None, &out, sparse(precision), []).unwrap();
        let session = on_cpu(&out);
        let info = session.info();
        let (quantization, sparsity) = (info.quantization.clone().unwrap(), info.sparsity.clone().unwrap());
        assert_eq!(quantization.int8 + quantization.float8_weights, report.quantized);
        assert_eq!(
            (report.quantized, sparsity.weights),
            (4 * info.depth, 4 * info.depth)
        );
        assert_eq!(
            sparsity.packed_bytes,
            sparsity.dense_bytes * 5 / 8 + 16 * sparsity.weights as u64
        );
        let (error, _) = difference(&expected, &outputs(&session, &images[..64]));
        println!(
            "{}: {:.2} % from the pruned model",
            precision.name(),
            100.0 * error
        );
        assert!(error > 0.0 && error < 0.1, "{error}");
    }
}

/// Copies `good`, for tests that change tensors and configuration.
fn copy(good: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(good.join(file), to.join(file)).unwrap();
    }
}

fn edit(model: &Path, change: impl Fn(&mut Value)) {
    let file = model.join("config.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    change(&mut config["quantization_config"]);
    fs::write(&file, config.to_string()).unwrap();
}

/// The configuration has the form that packing releases of llm-compressor write.
#[test]
fn the_configuration_of_llm_compressor_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let [good, other] = ["good", "other"].map(|name| dir.path().join(name));
    pruned(None, &good);
    copy(&good, &other);
    edit(&other, |quantization| {
        *quantization = json!({
            "version": "0.13.0",
            "quant_method": "compressed-tensors",
            "sparsity_config": {
                "format": "sparse-24-bitmask",
                "global_sparsity": 0.4832,
                "ignore": ["head"],
                "registry_requires_subclass": false,
                "sparsity_structure": "2:4",
                "targets": ["Linear"],
            },
            "transform_config": {},
        });
    });
    let images = images();
    let [good, other] = [good, other].map(|model| outputs(&on_cpu(&model), &images[..4]));
    assert_eq!(good.logits(), other.logits());
}

#[test]
fn damaged_models_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let good = dir.path().join("good");
    pruned(None, &good);
    type Change = fn(&mut Tensors);
    fn part<'a>(tensors: &'a mut Tensors, part: &str) -> &'a mut (Dtype, Vec<usize>, Vec<u8>) {
        tensors.get_mut(&format!("{LAYER}.{part}")).unwrap()
    }
    let changes: [(Change, &[&str]); 10] = [
        (
            |t| _ = t.remove(&format!("{LAYER}.bitmask")),
            &["qkv.bitmask", "is missing"],
        ),
        (
            |t| _ = t.remove(&format!("{LAYER}.compressed")),
            &["qkv.compressed", "is missing"],
        ),
        (
            |t| _ = t.remove(&format!("{LAYER}.shape")),
            &["qkv.shape", "is missing"],
        ),
        (
            |t| part(t, "bitmask").2[0] = 0b0111_0011,
            &["qkv.bitmask", "3 of four", "row 0, columns 4 to 7", "expected 2"],
        ),
        (
            |t| part(t, "bitmask").2[9] = 0,
            &["qkv.bitmask", "0 of four", "row 1, columns 8 to 11"],
        ),
        (|t| part(t, "bitmask").0 = Dtype::I8, &["qkv.bitmask", "I8", "U8"]),
        (
            |t| {
                let (_, shape, bytes) = part(t, "compressed");
                shape[0] -= 1;
                let columns = shape[1];
                bytes.truncate(bytes.len() - 4 * columns);
            },
            &["qkv.compressed", "has shape [191, 32], expected [192, 32]"],
        ),
        (
            |t| {
                let (_, shape, bytes) = part(t, "bitmask");
                *shape = vec![shape[0] * shape[1]];
                bytes[0] = 0b11_0011;
            },
            &["qkv.bitmask", "expected [192, 8]"],
        ),
        (|t| part(t, "shape").2[7] = 0x80, &["qkv.shape", "not two sizes"]),
        (
            |t| _ = t.insert(format!("{LAYER}.weight"), (Dtype::F32, vec![1], vec![0; 4])),
            &["qkv.weight", "twice"],
        ),
    ];
    for (index, (change, parts)) in changes.into_iter().enumerate() {
        let model = dir.path().join(format!("tensors{index}"));
        copy(&good, &model);
        rewrite(&model, change);
        refused(&["inspect".into(), model.into()], parts);
    }
    type Edit = fn(&mut Value);
    let edits: [(Edit, &[&str]); 4] = [
        (
            |q| q["sparsity_config"]["format"] = json!("sparse-bitmask"),
            &["format", "\"sparse-bitmask\"", "sparse-24-bitmask"],
        ),
        (
            |q| q["sparsity_config"]["sparsity_structure"] = json!("8:16"),
            &["sparsity_structure", "\"8:16\"", "2:4"],
        ),
        (|q| q["sparsity_config"] = Value::Null, &["format"]),
        (
            |q| q["quant_method"] = json!("gptq"),
            &["quant_method", "\"gptq\""],
        ),
    ];
    for (index, (change, parts)) in edits.into_iter().enumerate() {
        let model = dir.path().join(format!("config{index}"));
        copy(&good, &model);
        edit(&model, change);
        refused(
            &["inspect".into(), model.into()],
            &[&["config.json"], parts].concat(),
        );
    }
    refused(
        &[
            "quantize".into(),
            good.into(),
            "-o".into(),
            dir.path().join("again").into(),
        ],
        &["quantised already"],
    );
}

/// A flipped bit of a mask or of a shape is always detected. No flipped bit causes a panic.
#[test]
fn flipped_bits_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let [good, bad] = ["good", "bad"].map(|name| dir.path().join(name));
    pruned(None, &good);
    copy(&good, &bad);
    let mut state = 24u32;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize % below
    };
    for part in ["bitmask", "shape", "compressed"] {
        for _ in 0..40 {
            let layer = ["attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2"][random(4)];
            let name = format!("blocks.{}.{layer}.{part}", random(4));
            let (place, bit) = (random(1 << 20), random(8));
            fs::copy(good.join("model.safetensors"), bad.join("model.safetensors")).unwrap();
            rewrite(&bad, |tensors| {
                let bytes = &mut tensors.get_mut(&name).unwrap().2;
                let place = place % bytes.len();
                bytes[place] ^= 1 << bit;
            });
            let loaded = model::load(&bad, &LoadOptions::default());
            match part {
                "compressed" => _ = loaded.unwrap(),
                _ => {
                    let error = loaded.unwrap_err().to_string();
                    let layer = name.rsplit_once('.').unwrap().0;
                    // A shape that is wrong may be told from the values that do not fit it.
                    assert!(error.contains(layer), "{name}: {error}");
                }
            }
        }
    }
}

#[test]
fn the_command_says_what_it_pruned() {
    let dir = tempfile::tempdir().unwrap();
    let args = |out: &Path, more: &[&str]| -> Vec<OsString> {
        let mut args: Vec<OsString> = vec!["quantize".into(), "-o".into(), out.into()];
        args.extend(more.iter().map(OsString::from));
        args
    };
    let out = dir.path().join("model");
    let output = hipvit(args(&out, &["--to", "full"]));
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--sparse") && !out.exists());
    let output = hipvit(args(&out, &["--sparse", "2:4"]));
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for part in [
        "2:4: 16 weights packed",
        "unpacked at load",
        "by magnitude",
        "weights in their original precision",
    ] {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
    let output = hipvit(&["inspect".into(), out.into()] as &[OsString]);
    let inspected = stdout(&output);
    assert!(inspected.contains("2:4: 16 weights packed"), "{inspected}");
    let digits = at("assets/digits/heldout.safetensors");
    let out = dir.path().join("corrected");
    let more = [
        "--sparse",
        "2:4",
        "--to",
        "fp8",
        "--calibrate",
        digits.to_str().unwrap(),
    ];
    let output = hipvit(args(&out, &more));
    let text = stdout(&output);
    assert!(
        text.contains("weights in fp8") && text.contains("SparseGPT with 360 images"),
        "{text}"
    );
}
