//! Every golden model, and the held-out digits, on a GPU. Runs where `HIPVIT_TEST_DEVICE` names one (`hip:0`), and says so
//! where it does not. `--nocapture` shows a line for each model.

use std::panic::catch_unwind;

use hipvit::evaluate::evaluate;
use hipvit::image::{Limits, open};
use hipvit::model::InputKind;
use hipvit::timing::Timing;
use hipvit::{DType, Device, Outputs, Session, digits};
use ndarray::{Array2, Axis};

use crate::at;
use crate::command_line::{hipvit, stderr};
use crate::goldens::{Case, cases};

const DTYPES: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

fn device() -> Option<Device> {
    let Ok(name) = std::env::var("HIPVIT_TEST_DEVICE") else {
        eprintln!("skipped: HIPVIT_TEST_DEVICE does not name a GPU");
        return None;
    };
    Some(name.parse().unwrap())
}

/// How far an output may be from the libraries' in double precision, as a part of the largest. In f32 1e-4. In a
/// narrower type each step rounds its operands or its result about twice, by ε/2 at most; such errors add up at random,
/// and the worst of many elements is some four times the root mean square.
fn bound(session: &Session) -> f64 {
    let epsilon = match session.dtype() {
        DType::F16 => 2f64.powi(-10),
        DType::BF16 => 2f64.powi(-7),
        _ => return 1e-4,
    };
    let roundings = 2.0 * session.graph().nodes().len() as f64;
    4.0 * epsilon / 2.0 * roundings.sqrt()
}

/// The largest error, and whether each row's largest element is the same, unless two lie closer than the bound allows.
fn compare(got: &Array2<f32>, expected: &Array2<f64>, bound: f64) -> (f64, bool) {
    assert_eq!(got.dim(), expected.dim());
    let largest = expected.iter().fold(0f64, |m, x| m.max(x.abs()));
    let errors = got
        .iter()
        .zip(expected)
        .map(|(&g, e)| (f64::from(g) - e).abs() / largest);
    // A NaN is no small error.
    let error = errors.fold(0f64, |m, e| if e <= m { m } else { e });
    let same = got
        .rows()
        .into_iter()
        .zip(expected.rows())
        .all(|(got, expected)| {
            let top = (0..got.len()).max_by(|&a, &b| got[a].total_cmp(&got[b])).unwrap();
            let best = expected.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            best - expected[top] <= 2.0 * bound * largest
        });
    (error, same)
}

/// From pixel values, and from the files that every decoder reads alike.
fn run(case: &Case, device: Device, dtype: DType) -> (f64, f64, bool) {
    let golden = case.golden();
    let builder = case.builder().device(device).dtype(dtype);
    let check =
        |outputs: &Outputs, expected: &Array2<f64>, bound| compare(case.select(outputs), expected, bound);

    let session = case.load(&builder.clone().input(InputKind::PixelValues));
    assert_eq!(session.device(), device);
    let bound = bound(&session);
    let values: Vec<f32> = golden.pixel_values.iter().copied().collect();
    let outputs = session.run_values(&values, &mut Timing::default()).unwrap();
    let (mut error, mut same) = check(&outputs, &golden.output, bound);

    let png = |(_, name): &(usize, &String)| name.ends_with(".png");
    let (rows, images): (Vec<usize>, Vec<_>) = case
        .images
        .iter()
        .enumerate()
        .filter(png)
        .map(|(row, name)| {
            (
                row,
                open(at("tests/golden/images").join(name), &Limits::default()).unwrap(),
            )
        })
        .unzip();
    if !images.is_empty() {
        let outputs = case.load(&builder).run(&images).unwrap();
        let (e, s) = check(&outputs, &golden.output.select(Axis(0), &rows), bound);
        (error, same) = (if e <= error { error } else { e }, same && s);
    }
    (error, bound, same)
}

#[test]
fn golden_models_agree_in_every_dtype() {
    let Some(device) = device() else { return };
    let mut failed = 0;
    for dtype in DTYPES {
        for case in cases() {
            // One model that cannot run hides nothing about the others.
            let Ok((error, bound, same)) = catch_unwind(|| run(&case, device, dtype)) else {
                println!("FAIL {dtype:<4} {:<34} did not run", case.name);
                failed += 1;
                continue;
            };
            let pass = error <= bound && same;
            failed += usize::from(!pass);
            println!(
                "{} {dtype:<4} {:<34} error {error:.2e} of {bound:.1e}{}",
                if pass { "PASS" } else { "FAIL" },
                case.name,
                if same { "" } else { ", another top-1" }
            );
        }
    }
    assert_eq!(failed, 0, "models failed");
}

#[test]
fn held_out_digits_are_recognised_in_every_dtype() {
    let Some(device) = device() else { return };
    for dtype in DTYPES {
        let session = Session::builder().device(device).dtype(dtype).batch(64);
        let session = session.tinyvit32().unwrap();
        let result = evaluate(
            &session,
            digits::held_out().unwrap(),
            &Limits::default(),
            |item| {
                assert!(item.result.is_ok());
            },
        )
        .unwrap();
        println!(
            "{dtype:<4} TinyViT32: {} of {} right",
            result.correct, result.images
        );
        // An image whose two first logits lie within a narrow type's error may go either way.
        let slack = if dtype == DType::F32 { 0 } else { 2 };
        assert_eq!(result.images, 360);
        assert!(
            result.correct.abs_diff(357) <= slack,
            "{dtype}: {}",
            result.correct
        );
    }
}

#[test]
fn without_a_provider_a_gpu_is_an_error_and_auto_is_the_cpu() {
    let run = |args: &[&str]| {
        std::process::Command::new(env!("CARGO_BIN_EXE_hipvit"))
            .args(args)
            .env("HIPVIT_PROVIDER", "/nowhere/libamdhip64.so")
            .output()
            .unwrap()
    };
    for device in ["hip", "hip:3"] {
        let output = run(&["classify", "--device", device, "--dtype", "f16"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.is_empty());
        assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
        assert!(stderr(&output).contains("/nowhere"), "{}", stderr(&output));
    }
    let output = run(&["classify", "--device", "auto", "--top", "1"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let note = stderr(&output);
    assert!(
        note.starts_with("note: running on the CPU: ") && note.contains("/nowhere"),
        "{note}"
    );
    assert_eq!(note.lines().count(), 1, "{note}");
    // That is the default, which is silent where no GPU's libraries are installed.
    for device in [&["--device", "cpu"][..], &[]] {
        let output = run(&[&["classify"], device].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!(stderr(&output), "");
    }
}

#[test]
fn the_cpu_has_no_narrow_types_and_devices_have_names() {
    let output = hipvit(["eval", "--device", "cpu", "--dtype", "bf16"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("the cpu computes in f32"),
        "{}",
        stderr(&output)
    );
    for (wrong, flag) in [("hip:", "--device"), ("cuda", "--device"), ("u8", "--dtype")] {
        assert_eq!(hipvit(["embed", flag, wrong]).status.code(), Some(2), "{wrong}");
    }
    for name in ["auto", "cpu", "hip:0", "hip:12"] {
        assert_eq!(name.parse::<Device>().unwrap().to_string(), name);
    }
    assert_eq!("hip".parse::<Device>().unwrap(), Device::Hip(0));
}
