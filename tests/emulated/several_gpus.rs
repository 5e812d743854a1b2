//! Models that are divided among several emulated GPUs, or have a replica on each.

use serde_json::Value;

use crate::support::bench;
use crate::support::emulated::{available, hipvit, passes};
use crate::support::program::{stderr, stdout};

#[test]
fn two_gpus_copy_to_each_other_and_give_the_same_bits() {
    if available() {
        passes(
            "gfx942x2",
            "f16",
            &["gpu::two_gpus_copy_to_each_other_and_give_the_same_bits"],
        );
    }
}

#[test]
fn a_model_over_two_gpus_computes_what_one_does() {
    if available() {
        let test = ["gpu::parallel::a_model_over_two_gpus_computes_what_one_does"];
        passes("gfx942x2", "f32,bf16", &test);
        // A model is divided by the same code in every dtype. Except for the sums over peer memory, the
        // kernels are those of one GPU.
        passes("gfx1100x2", "bf16", &test);
    }
}

#[test]
fn stages_of_two_gpus_compute_what_one_does() {
    if available() {
        let test = ["gpu::parallel::stages_of_two_gpus_compute_what_one_does"];
        passes("gfx942x4", "bf16", &test);
        // Two replicas of them.
        passes("gfx1100x8", "f32", &test);
    }
}

/// The command line uses every GPU.
#[test]
fn stages_of_two_gpus_classify_and_are_measured() {
    if !available() {
        return;
    }
    let top = |more: &[&str]| -> Vec<(Value, f64)> {
        let arguments = ["classify", "--json", "--batch", "3", "assets/samples"];
        let output = hipvit("gfx942x4", &[&arguments[..], more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let lines = stdout(&output).lines();
        let lines = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
        let best = |line: Value| {
            let top = line.get("top")?.get(0)?;
            Some((top["label"].clone(), top["probability"].as_f64()?))
        };
        lines.filter_map(best).collect()
    };
    let both = ["--device", "hip:all", "--parallel", "tensor=2,pipeline=2"];
    let (expected, got) = (top(&["--device", "hip"]), top(&both));
    assert!(expected.len() > 5 && got.len() == expected.len(), "{got:?}");
    for ((label, probability), (expected_label, expected)) in got.iter().zip(&expected) {
        assert_eq!(label, expected_label);
        assert!((probability - expected).abs() < 1e-4, "{probability} {expected}");
    }

    let quick = ["--json", "--dtype", "f32", "--batch", "2", "--in-flight", "3"];
    let output = hipvit("gfx942x4", &[&bench::QUICK[..], &quick, &both].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let rows = bench::rows(&output);
    let [one, set] = rows.as_slice() else {
        panic!("{rows:?}");
    };
    assert_eq!([&one["error"], &set["error"]], [&Value::Null; 2], "{rows:?}");
    assert_eq!(set["device"]["name"], "4 × AMD Instinct MI300X");
    assert_eq!(set["devices"].as_array().unwrap().len(), 4);
    assert!(set["scaling"]["factor"].as_f64().unwrap() > 0.0, "{set}");
}

#[test]
fn eight_bits_are_divided_and_chosen() {
    if available() {
        passes(
            "gfx942x4",
            "bf16",
            &[
                "gpu::parallel::a_model_in_float8_over_two_gpus_computes_what_one_does",
                "gpu::quantized::precisions_are_chosen_for_the_gpu",
            ],
        );
    }
}

#[test]
fn gpus_sum_over_peer_memory() {
    if available() {
        let tests = [
            "gpu::all_reduce::sums_over_peer_memory_agree_with_f64",
            "gpu::all_reduce::a_rank_that_never_comes_is_an_error",
            "gpu::all_reduce::an_aborted_sum_ends",
        ];
        let large = ["gpu::all_reduce::large_sums_over_peer_memory_agree_with_f64"];
        passes("gfx942x4", "f32,f16,bf16", &tests);
        passes("gfx942x4", "bf16", &large);
        passes("gfx1100x2", "f32,bf16", &tests);
    }
}

#[test]
fn replicas_on_two_gpus_give_the_bits_of_one() {
    if available() {
        passes(
            "gfx942x2",
            "f32,bf16",
            &["gpu::replicas_on_two_gpus_give_the_bits_of_one"],
        );
    }
}
