//! `hipvit validate` on the CPU, as a user runs it. The library's own tests plant faults.

use std::fs;
use std::process::Command;

use crate::support::at;
use crate::support::program::{hipvit, json, stderr, stdout};

#[test]
fn the_cpu_passes_and_the_table_says_so() {
    let some = ["--config", "micro,awkward", "--dtype", "f32"];
    let output = hipvit([&["validate", "--device", "cpu"], &some[..]].concat());
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(stderr(&output).is_empty(), "{}", stderr(&output));
    assert!(text.starts_with("cpu: "), "{text}");
    for part in [
        "peak: ",
        "GB/s by a copy of 256 MiB",
        "FLOP/s in f32 by a GEMM of",
        "linear+bias+gelu",
        "linear+bias+residual, in place",
        "attention 2×16 packed-qkv",
        "all 771",
        " 0 failed, ",
        "1×2×32×16            0.01",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let row = |op: &str| {
        let mut lines = text.lines();
        lines.find(|line| line.starts_with(op)).unwrap().to_owned()
    };
    assert!(row("ok    normalize").contains("1×64×128×3 → 1×3×64×128"));
    assert!(row("skip  layer_norm kernel").contains("is a form of a GPU kernel"));
    assert!(row("ok    resize bicubic horizontal").contains("37×61×3 → 37×24×3"));
}

#[test]
fn rows_are_chosen_and_written_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    let chosen = [
        "validate",
        "--device",
        "cpu",
        "--dtype",
        "f32",
        "--config",
        "micro,small",
        "--op",
        "linear,pool",
    ];
    let output = hipvit(chosen.into_iter().chain(["-o", file.to_str().unwrap()]));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(stdout(&output), "");
    let report = json(&fs::read_to_string(&file).unwrap());
    assert_eq!(report["schema"], "hipvit.validate/2");
    assert_eq!(report["device"], "cpu");
    assert!(report["peaks"]["copy_bytes_per_second"].as_f64().unwrap() > 0.0);
    assert_eq!(report["peaks"]["gemms"][0]["dtype"], "f32");
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(report["passed"], rows.len());
    assert_eq!((&report["failed"], &report["skipped"]), (&0.into(), &0.into()));
    for row in rows {
        assert!(["linear", "pool"].contains(&row["op"].as_str().unwrap()), "{row}");
        assert!(
            ["micro", "small"].contains(&row["config"].as_str().unwrap()),
            "{row}"
        );
        assert_eq!((&row["status"], &row["dtype"]), (&"passed".into(), &"f32".into()));
        assert!(
            row["elementwise_error"].as_f64() <= row["tolerance"].as_f64(),
            "{row}"
        );
        assert_eq!(row["rows_checked"], row["rows"]);
        assert!(
            row["seconds"].as_f64() > Some(0.0) && row["runs"].as_u64() >= Some(1),
            "{row}"
        );
        assert!(row["bytes"].as_u64() > Some(0), "{row}");
    }
    let fc1 = rows.iter().find(|row| row["form"] == "linear+bias+gelu").unwrap();
    assert_eq!(
        fc1["operands"],
        serde_json::json!([[1, 32, 32], [128, 32], [128]])
    );
    assert_eq!(fc1["result"], serde_json::json!([1, 32, 128]));
    // GEMM and bias, 2·K+1 per element, and the activation's.
    assert!(fc1["flops"].as_u64().unwrap() >= 32 * 128 * 65);

    // Sizes of one's own, without timing.
    let output = hipvit([
        "validate",
        "--device",
        "cpu",
        "--config",
        "2x3x17x8",
        "--op",
        "attention",
        "--untimed",
        "--json",
    ]);
    let custom = json(stdout(&output));
    assert_eq!(custom["peaks"]["gemms"], serde_json::json!([]));
    let row = &custom["rows"][0];
    assert_eq!(
        (&row["config"], &row["status"]),
        (&"2x3x17x8".into(), &"passed".into())
    );
    assert_eq!(row["operands"], serde_json::json!([[2, 17, 72]]));
    assert!(row["seconds"].is_null() && row["runs"] == 0, "{row}");

    let output = hipvit(chosen.into_iter().chain(["--json"]));
    assert_eq!(
        json(stdout(&output))["rows"].as_array().unwrap().len(),
        rows.len()
    );
    let output = hipvit(chosen.into_iter().chain(["--format", "csv"]));
    assert_eq!(stdout(&output).lines().count(), rows.len() + 1);
    assert!(stdout(&output).starts_with("op,form,in_place,config,dtype,operands,result,status,"));
}

#[test]
fn what_cannot_be_validated_is_refused() {
    for (flag, value) in [
        ("--config", "huge"),
        ("--op", "gemm"),
        ("--dtype", "f64"),
        ("--device", "abacus"),
    ] {
        let output = hipvit(["validate", flag, value]);
        assert_eq!(output.status.code(), Some(2), "{flag}");
        assert!(stderr(&output).contains(value), "{}", stderr(&output));
    }
    let output = Command::new(env!("CARGO_BIN_EXE_hipvit"))
        .args(["validate", "--device", "hip", "--config", "micro"])
        .env("HIPVIT_PROVIDER", "/nowhere/libamdhip64.so")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
    assert!(stderr(&output).contains("/nowhere"), "{}", stderr(&output));
}

#[test]
fn auto_says_why_it_is_the_cpu() {
    let output = Command::new(env!("CARGO_BIN_EXE_hipvit"))
        .args(["validate", "--op", "pool", "--config", "micro"])
        .env("HIPVIT_PROVIDER", "/nowhere/libamdhip64.so")
        .output()
        .unwrap();
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.starts_with("cpu: "), "{text}");
    let reason = text.lines().find(|line| line.starts_with("no GPU: ")).unwrap();
    assert!(reason.contains("/nowhere"), "{reason}");
}

/// Creates TinyViT32 with a different bias in block 2.
fn tiny_with_a_wrong_bias(folder: &std::path::Path) {
    let tiny = at("assets/tinyvit32");
    fs::copy(tiny.join("config.json"), folder.join("config.json")).unwrap();
    let mut bytes = fs::read(tiny.join("model.safetensors")).unwrap();
    let at = {
        let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let data = tensors.tensor("blocks.2.mlp.fc2.bias").unwrap().data().as_ptr();
        data as usize - bytes.as_ptr() as usize
    };
    bytes[at..at + 4].copy_from_slice(&3f32.to_le_bytes());
    fs::write(folder.join("model.safetensors"), bytes).unwrap();
}

#[test]
fn a_model_is_compared_layer_by_layer_and_certified() {
    let folder = tempfile::tempdir().unwrap();
    let certificate = folder.path().join("certificate.json");
    let on_cpu = ["validate", "--against", "unoptimized", "--device", "cpu"];
    let output = hipvit(
        on_cpu
            .into_iter()
            .chain(["--certificate", certificate.to_str().unwrap()]),
    );
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    for part in [
        "ok  patch embedding",
        "ok  block 3",
        "ok  logits, as served",
        " 0 beyond",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let found = json(&fs::read_to_string(&certificate).unwrap().replace('\n', ""));
    assert_eq!(found["schema"], "hipvit.certificate/1");
    assert_eq!(
        (&found["passed"], &found["device"]["kind"]),
        (&true.into(), &"cpu".into())
    );
    assert_eq!(found["models"][0]["layers"][0]["name"], "patch embedding");
    assert_eq!(found["models"][0]["weights_sha256"].as_str().unwrap().len(), 64);

    // A wrong weight is named, and the certificate says so.
    tiny_with_a_wrong_bias(folder.path());
    let wrong = [
        "--baseline",
        folder.path().to_str().unwrap(),
        "--certificate",
        certificate.to_str().unwrap(),
    ];
    let output = hipvit(on_cpu.into_iter().chain(wrong));
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}{}", stderr(&output));
    assert!(
        text.contains("FAIL tinyvit32: block 2 is the first layer beyond its tolerance"),
        "{text}"
    );
    assert!(text.contains("ok    block 1"), "{text}");
    let found = json(&fs::read_to_string(&certificate).unwrap().replace('\n', ""));
    assert_eq!(
        (&found["passed"], &found["models"][0]["first_beyond"]),
        (&false.into(), &"block 2".into())
    );

    let output = hipvit(
        on_cpu
            .into_iter()
            .chain(["--certificate", "/nowhere/certificate.json"]),
    );
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("/nowhere"), "{}", stderr(&output));
}

#[test]
fn the_unit_tier_has_ops_and_a_model() {
    let output = hipvit(["validate", "--tier", "unit", "--device", "cpu", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let both = json(stdout(&output));
    assert_eq!(
        (&both["tier"], &both["limit_seconds"]),
        (&"unit".into(), &30.0.into())
    );
    assert_eq!(both["ops"]["configs"][0]["config"], "micro");
    assert_eq!(both["ops"]["failed"], 0);
    assert_eq!(both["models"][0]["against"], "unoptimized");
    for arguments in [
        &["--against", "cpu", "--op", "linear"][..],
        &["--images", "assets/samples/7.png"],
        &["--tier", "unit", "--format", "csv"],
        &["--tier", "quick"],
        &["--against", "gpu"],
    ] {
        let output = hipvit(["validate", "--device", "cpu"].iter().chain(arguments));
        assert_eq!(
            output.status.code(),
            Some(2),
            "{arguments:?}: {}",
            stderr(&output)
        );
    }
}
