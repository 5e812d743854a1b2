//! `hipvit profile --counters` through the fake provider's rocprofiler-sdk: counts, and messages if counting
//! fails.

use std::process::{Command, Output};

use serde_json::Value;

use crate::support::fake::Fake;
use crate::support::program::{stderr, stdout};

/// `hipvit profile --counters` with a fault of the library.
fn counters(fake: &Fake, fault: &str, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hipvit"))
        .args(["profile", "--counters", "--device", "hip", "--batch", "2"])
        .args(arguments)
        .env("HIPVIT_PROVIDER", &fake.path)
        .env("FAKE_DEVICES", "1")
        .env("FAKE_ROCPROFILER", fault)
        .env_remove("HIPVIT_ROCTX")
        .output()
        .unwrap()
}

fn report(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    serde_json::from_str(stdout(output)).unwrap()
}

#[test]
fn an_amd_gpus_counters_are_summed_by_kernel() {
    let fake = Fake::new("counters");
    let report = report(&counters(&fake, "", &["--json"]));
    assert_eq!(report["source"], "rocprofiler-sdk");
    assert_eq!(
        (&report["device"]["kind"], &report["batch"]),
        (&"rocm".into(), &2.into())
    );
    // Five counters of a block that counts two at a time; the second group has as many of another block.
    assert_eq!(report["passes"], 3);
    let absent = report["absent"].as_array().unwrap();
    let absent: Vec<&str> = absent.iter().map(|names| names[0].as_str().unwrap()).collect();
    // WRITE_SIZE needs more registers than there are, even alone.
    for name in ["SQ_INSTS_MFMA", "WRITE_SIZE", "GRBM_GUI_ACTIVE"] {
        assert!(absent.contains(&name), "{name}: {absent:?}");
    }
    assert!(!absent.contains(&"SQ_WAVES"), "{absent:?}");

    let kernels = report["kernels"].as_array().unwrap();
    let launches = |name: &str| {
        let of = kernels
            .iter()
            .filter(|k| k["kernel"].as_str().unwrap().starts_with(name));
        of.map(|k| k["launches"].as_u64().unwrap()).sum::<u64>()
    };
    // TinyViT32 has four blocks, each with two norms, attention and four linear layers; then a norm and the head.
    assert_eq!(launches("patch_extract"), 1);
    assert_eq!(launches("attention"), 4);
    assert_eq!(launches("layer_norm"), 9);
    assert_eq!(launches("Cijk_"), 18);
    for row in kernels {
        let counters = row["counters"].as_object().unwrap();
        assert_eq!(counters.len(), 8, "{row}");
        let waves = counters["SQ_WAVES"].as_f64().unwrap();
        assert!(waves >= row["launches"].as_f64().unwrap(), "{row}");
        // Of all passes, and over all instances.
        for (name, each) in [
            ("SQ_INSTS_VALU", 10.0),
            ("SQ_INSTS_SALU", 3.0),
            ("SQ_LDS_IDX_ACTIVE", 8.0),
            ("SQ_LDS_BANK_CONFLICT", 2.0),
            ("TCC_HIT_sum", 3.0),
            ("TCC_MISS_sum", 1.0),
            ("FETCH_SIZE", 0.25),
        ] {
            assert_eq!(counters[name], each * waves, "{name}: {row}");
        }
    }

    let output = counters(&fake, "", &[]);
    let text = stdout(&output);
    for shown in [
        "tinyvit32, batch 2, f32, Fake Instinct (gfx942)",
        "patch_extract_f32",
        "Cijk_",
        "n/a",
        "75.0",
        "25.0",
        "VALU SQ_INSTS_VALU",
        "3 passes",
        "does not count",
        "SQ_LDS_BANK_CONFLICT",
    ] {
        assert!(text.contains(shown), "{shown}: {text}");
    }
}

#[test]
fn a_kernel_without_a_name_has_its_number() {
    let fake = Fake::new("counters-nameless");
    let report = report(&counters(&fake, "nameless", &["--json"]));
    let kernels = report["kernels"].as_array().unwrap();
    assert!(kernels.iter().any(|k| k["kernel"] == "kernel 1000"), "{report}");
}

#[test]
fn what_cannot_be_counted_is_said_and_nothing_is_shown() {
    let fake = Fake::new("counters-refused");
    for (fault, reason) in [
        ("version", "version 2.0.3"),
        ("locked", "a profiler is in this process already"),
        ("context", "ROCPROFILER_STATUS_ERROR_CONTEXT_ERROR"),
        (
            "unseen",
            "saw no launch of a kernel: the HIP runtime was initialised before",
        ),
        ("none", "this GPU has none of the counters SQ_WAVES"),
        (
            "denied",
            "ROCPROFILER_STATUS_ERROR_PERMISSION_DENIED (40); the driver",
        ),
        ("partial", "pool_f32: a launch has no count of SQ_WAVES"),
        ("other kernels", "launched different kernels"),
        ("lost", "the counts of 1 of"),
    ] {
        let output = counters(&fake, fault, &["--json"]);
        assert_eq!(output.status.code(), Some(1), "{fault}: {}", stderr(&output));
        assert!(
            stderr(&output).contains("rocprofiler"),
            "{fault}: {}",
            stderr(&output)
        );
        assert!(stderr(&output).contains(reason), "{fault}: {}", stderr(&output));
        assert_eq!(stdout(&output), "", "{fault}");
    }
}

#[test]
fn without_the_library_its_package_is_named() {
    let fake = Fake::new("counters-absent");
    // A ROCm without rocprofiler-sdk.
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(&fake.path, folder.path().join("libamdhip64.so.7")).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_hipvit"))
        .args(["profile", "--counters"])
        .env("HIPVIT_PROVIDER", folder.path())
        .env("FAKE_DEVICES", "1")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    for named in ["librocprofiler-sdk.so.1", "package rocprofiler-sdk", "emu:gfx942"] {
        assert!(stderr(&output).contains(named), "{named}: {}", stderr(&output));
    }
}
