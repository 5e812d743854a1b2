//! Every golden model: pixel values bit for bit, outputs within 2e-5 of the largest.

use hipvit::image::{Limits, open};
use hipvit::model::InputKind;
use hipvit::{DType, Device, RunInput, RunOptions};
use ndarray::Axis;

use crate::support::at;
use crate::support::goldens::{Case, cases, index, run};

/// All cases, and the directories as the libraries' own functions save them and as people edit them.
fn all_cases() -> Vec<Case> {
    let mut cases = cases();
    let saved = index("tests/golden/saved/cases.json");
    assert!(saved.len() > 5);
    cases.extend(saved);
    cases
}

#[test]
fn pixel_values_equal_the_libraries() {
    for case in all_cases() {
        let session = case.load(&case.builder());
        let golden = case.golden();
        let rule = session.preprocess();
        for (index, name) in case.images.iter().enumerate() {
            let image = open(at("tests/golden/images").join(name), Limits::default()).unwrap();
            let image = rule.apply(&image).unwrap();
            let mut got = vec![0.0; image.data.len()];
            rule.normalize(&image.data, &mut got).unwrap();
            let expected = golden.pixel_values.index_axis(Axis(0), index);
            assert_eq!(expected.shape(), [3, image.height, image.width], "{}", case.name);
            for (at, (&got, &expected)) in got.iter().zip(expected).enumerate() {
                assert!(
                    got == expected,
                    "{} {name} at {at}: {got}, expected {expected}",
                    case.name
                );
            }
        }
    }
}

#[test]
fn outputs_from_pixel_values_equal_the_libraries() {
    for case in all_cases() {
        let golden = case.golden();
        let session = case.load(&case.builder().input(InputKind::PixelValues));
        let values: Vec<f32> = golden.pixel_values.iter().copied().collect();
        let outputs = session
            .run_with(RunInput::Values(&values), RunOptions::new())
            .unwrap();
        case.assert_output("from pixel values", case.select(&outputs), &golden.output);
    }
}

/// The whole way, with the normalisation constants folded into the weights.
#[test]
fn outputs_from_files_equal_the_libraries() {
    for case in all_cases() {
        let session = case.load(&case.builder());
        let golden = case.golden();
        let open = |name: &String| open(at("tests/golden/images").join(name), Limits::default()).unwrap();
        let images: Vec<_> = case.images.iter().map(open).collect();
        let outputs = session.run(&images).unwrap();
        case.assert_output("from files", case.select(&outputs), &golden.output);
    }
}

#[test]
fn the_cpu_agrees_with_golden_models_in_16_bits() {
    for dtype in [DType::F16, DType::BF16] {
        for case in cases() {
            let (error, bound, same) = run(&case, Device::Cpu, dtype);
            assert!(
                error <= bound && same,
                "{} in {dtype}: {error:.2e} of {bound:.1e}",
                case.name
            );
        }
    }
}
