//! `hipvit devices`.

use std::process::{Command, Output};

use serde_json::Value;

use crate::support::fake::Fake;

fn devices(provider: &str, count: &str, arguments: &[&str]) -> Output {
    devices_with_cache(provider, count, arguments, "")
}

fn devices_with_cache(provider: &str, count: &str, arguments: &[&str], cache: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hipvit"))
        .arg("devices")
        .args(arguments)
        .env("HIPVIT_PROVIDER", provider)
        .env("FAKE_DEVICES", count)
        .env("HIPVIT_CACHE_DIR", cache)
        .output()
        .unwrap()
}

#[test]
fn without_rocm_the_cpu_is_listed_and_the_reason_given() {
    let folder = tempfile::tempdir().unwrap();
    let provider = folder.path().to_str().unwrap();
    let output = devices(provider, "", &[]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("cpu: "), "{text}");
    assert!(
        text.contains("no GPU: the HIP runtime (libamdhip64.so.7) was not found; tried ")
            && text.contains(provider),
        "{text}"
    );
    let json: Value = serde_json::from_slice(&devices(provider, "", &["--json"]).stdout).unwrap();
    assert!(json["cpu"]["threads"].as_u64().unwrap() >= 1);
    assert!(json["no_gpu"].as_str().unwrap().contains(provider));
}

#[test]
fn properties_and_links_are_listed() {
    let fake = Fake::new("devices");
    let provider = fake.path.to_str().unwrap();
    let text = String::from_utf8(devices(provider, "2", &[]).stdout).unwrap();
    for part in [
        "hip:1: Fake Instinct",
        "304, at 2100 MHz",
        "64 lanes, 32 per compute unit",
        "64 KiB per block",
        "1 GiB, 1 GiB free",
        "2662 GB/s",
        "0000:c1:00.0",
        "xGMI or NVLink, 1 hop, peer",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    assert!(!text.contains("no GPU"), "{text}");
    let json: Value = serde_json::from_slice(&devices(provider, "2", &["--json"]).stdout).unwrap();
    let gpu = &json["gpus"][0];
    assert_eq!(gpu["target"], "gfx942:sramecc+:xnack-");
    assert_eq!(gpu["wave_size"], 64);
    assert_eq!(gpu["links"][0]["kind"], "xgmi");
    assert_eq!(json["gpus"][1]["links"][0]["to"], 0);

    let text = String::from_utf8(devices(provider, "0", &[]).stdout).unwrap();
    assert!(text.contains("finds none; is the driver loaded"), "{text}");
}

#[test]
fn the_kernel_cache_is_shown() {
    let fake = Fake::new("devices-cache");
    let provider = fake.path.to_str().unwrap();
    let text = |cache: &str| String::from_utf8(devices_with_cache(provider, "1", &[], cache).stdout).unwrap();
    assert!(text("").contains("\nkernel cache: off\n"), "{}", text(""));
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().to_str().unwrap();
    let expected = format!("\nkernel cache: {cache}/kernels, 0 files, 0 B\n");
    assert!(text(cache).contains(&expected), "{}", text(cache));
    std::fs::write(folder.path().join("kernels/1.code"), [0; 2048]).unwrap();
    assert!(
        text(cache).contains("/kernels, 1 file, 2 KiB\n"),
        "{}",
        text(cache)
    );
    let output = devices_with_cache(provider, "1", &["--json"], cache);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["kernel_cache"]["bytes"], 2048);
    let file = format!("{cache}/kernels/1.code");
    assert!(
        text(&file).contains(&format!("kernel cache: {file}/kernels: ")),
        "{}",
        text(&file)
    );
}
