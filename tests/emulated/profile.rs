//! `hipvit profile` on the emulated GPUs: the timeline equals that of a real GPU.

use crate::support::emulated::{available, hipvit};
use crate::support::profile::{assert_busy, read, report, text};

#[test]
fn replays_copies_and_kernels_are_on_the_timeline() {
    if !available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for arch in ["gfx942", "gfx1100"] {
        let file = folder.path().join(format!("{arch}.json"));
        let arguments = [
            "profile",
            "--device",
            "hip",
            "--dtype",
            "f16",
            "--batch",
            "2",
            "--batches",
            "2",
            "--in-flight",
            "1",
            "--json",
            "-o",
        ];
        let output = hipvit(arch, &[&arguments[..], &[file.to_str().unwrap()]].concat());
        let report = report(&output);
        assert_eq!(report["device"]["arch"], arch);
        assert_eq!(
            (&report["replayed"], &report["fallback"]),
            (&2.into(), &serde_json::Value::Null)
        );
        assert_busy(
            &report["per_batch"],
            &[
                "copy in",
                "patch embedding",
                "QKV",
                "attention",
                "FFN",
                "other steps",
                "copy out",
            ],
        );
        let trace = read(&text(&file));
        let attention = trace.of("attention");
        let kernel = attention
            .iter()
            .find(|slice| slice.name.starts_with("attention_"))
            .unwrap();
        assert!(
            kernel.args["grid"].is_array() && kernel.args["block"].is_array(),
            "{kernel:?}"
        );
        assert_eq!(kernel.args["dtype"], "f16");
    }
}
