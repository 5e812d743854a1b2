//! Tests of the search with given times.

use std::ops::Range;

use super::super::layers::groups;
use super::super::{ActivationRange, Scales, activations, rounding};
use super::*;
use hipvit::model::{LoadOptions, load, tinyvit32};
use hipvit::ops::Rounding;

/// Microseconds of a GEMM in full precision, in int8 and in FP8.
type GemmTimes = fn([usize; 3]) -> [u64; 3];

/// Runs the search on TinyViT32 and noise images, with the given GEMM times in full precision, int8 and FP8.
fn decided(budget: f64, times: GemmTimes) -> (Decision, BTreeMap<String, Replacement>) {
    decided_by(budget, times, 0..6, 6..8)
}

/// Runs the search like [`decided`], with the given calibration and held-out images.
fn decided_by(
    budget: f64,
    times: GemmTimes,
    calibration: Range<usize>,
    held_out: Range<usize>,
) -> (Decision, BTreeMap<String, Replacement>) {
    let checkpoint = Checkpoint::open(None).unwrap();
    let model = tinyvit32(&LoadOptions::default()).unwrap();
    let layers = Layers::of(&model.graph);
    let groups = groups(&model.graph, &layers);
    let [height, width] = model.info.image_size;
    let image = |seed: usize| {
        (0..height * width * 3)
            .map(|i| (i * i * (seed + 3) % 251) as u8)
            .collect()
    };
    let images: Vec<Vec<u8>> = calibration.map(image).collect();
    let held_out: Vec<Vec<u8>> = held_out.map(image).collect();
    let round = |name: &String| {
        let rounded = rounding::round(&checkpoint, name, None, Precision::Int8, Scales::Largest);
        (name.clone(), rounded.unwrap())
    };
    let units = units(&model.graph, &layers, &groups);
    let of = |index: usize| -> Vec<Duration> {
        let sum = |unit: &Unit| unit.sizes.iter().map(|&size| times(size)[index]).sum();
        units
            .iter()
            .map(|unit| Duration::from_micros(sum(unit)))
            .collect()
    };
    let float8 = activations::round(&checkpoint, &model, &layers, &images, ActivationRange::Largest).unwrap();
    let options = [
        Quantized {
            precision: Precision::Int8,
            replaced: layers.quantized.iter().map(round).collect(),
            times: of(1),
        },
        Quantized {
            precision: Precision::Fp8,
            replaced: float8,
            times: of(2),
        },
    ];
    let full = on_cpu(model).unwrap();
    let images = References {
        calibration: Reference::new(&full, &images).unwrap(),
        held_out: (!held_out.is_empty()).then(|| Reference::new(&full, &held_out).unwrap()),
    };
    let by = (budget, "a test".to_owned());
    decide(&checkpoint, &units, &of(0), &options, &images, by).unwrap()
}

/// Runs the search for the CPU, with given GEMM times in full precision, int8 and bf16. Channels are balanced
/// in int8.
fn decided_on_cpu(budget: f64, times: GemmTimes) -> (Decision, BTreeMap<String, Replacement>) {
    let checkpoint = Checkpoint::open(None).unwrap();
    let model = tinyvit32(&LoadOptions::default()).unwrap();
    let layers = Layers::of(&model.graph);
    let groups = groups(&model.graph, &layers);
    let units = units(&model.graph, &layers, &groups);
    let of = |index: usize| -> Vec<Duration> {
        let sum = |unit: &Unit| unit.sizes.iter().map(|&size| times(size)[index]).sum();
        units
            .iter()
            .map(|unit| Duration::from_micros(sum(unit)))
            .collect()
    };
    let option = |precision, times| Quantized {
        precision,
        replaced: rounding::round_all(&checkpoint, &layers.quantized, precision, Scales::Largest).unwrap(),
        times,
    };
    let mut options = [option(Precision::Int8, of(1)), option(Precision::Bf16, of(2))];
    for name in groups.iter().flat_map(|group| &group.norm) {
        let values = checkpoint.tensor(name).unwrap().to_f32().into_owned();
        options[0].replaced.insert(name.clone(), Replacement::F32(values));
    }
    let [height, width] = model.info.image_size;
    let images = [0, 1, 2].map(|seed: usize| -> Vec<u8> {
        (0..height * width * 3)
            .map(|i| (i * i * (seed + 3) % 251) as u8)
            .collect()
    });
    let full = on_cpu(model).unwrap();
    let images = References {
        calibration: Reference::new(&full, &images[..2]).unwrap(),
        held_out: Some(Reference::new(&full, &images[2..]).unwrap()),
    };
    let by = (budget, "a test".to_owned());
    decide(&checkpoint, &units, &of(0), &options, &images, by).unwrap()
}

fn count(decision: &Decision, precision: Precision) -> usize {
    decision.layers(precision).count()
}

#[test]
fn the_budget_bounds_the_measured_error() {
    let faster = |_| [2, 1, 3];
    let (none, replaced) = decided(0.0, faster);
    assert!(replaced.is_empty() && none.calibration.error == 0.0);
    assert_eq!(none.calibration.agreeing, Some(6));
    let (all, replaced) = decided(1.0, faster);
    assert_eq!(
        [count(&all, Precision::Full), count(&all, Precision::Fp8)],
        [0; 2]
    );
    let error = all.calibration.error;
    assert!(error > 0.0 && count(&all, Precision::Int8) == replaced.len());
    let (some, replaced) = decided(error / 2.0, faster);
    assert!(some.calibration.within(error / 2.0), "{some:?} of {error}");
    let (int8, full) = (count(&some, Precision::Int8), count(&some, Precision::Full));
    assert!(int8 > 0 && full > 0 && int8 == replaced.len(), "{int8} {full}");
    // Among layers that save the same time, those with the least errors are chosen.
    let errors = |precision| {
        let of = some
            .choices
            .iter()
            .filter(move |choice| choice.precision == precision);
        of.map(|choice| choice.candidates[0].error)
    };
    let most = errors(Precision::Int8).fold(0.0, f64::max);
    assert!(most <= errors(Precision::Full).fold(1.0, f64::min));
}

#[test]
fn the_budget_bounds_the_error_on_held_out_images() {
    let faster = |_| [2, 1, 3];
    // The set of images with the larger error is held out, and the budget is between both errors.
    let (mut calibration, mut held_out) = (0..3, 3..6);
    let errors = |decision: &Decision| {
        let held_out = decision.held_out.as_ref().unwrap();
        (decision.calibration.error, held_out.error)
    };
    let (mut small, mut large) = errors(&decided_by(1.0, faster, 0..3, 3..6).0);
    if small > large {
        (small, large) = (large, small);
        (calibration, held_out) = (held_out, calibration);
    }
    let budget = f64::midpoint(small, large);
    let (alone, all) = decided_by(budget, faster, calibration.clone(), 0..0);
    assert!(alone.held_out.is_none() && alone.reverted.is_none());
    assert_eq!(alone.calibration.error, small);
    let (both, some) = decided_by(budget, faster, calibration, held_out);
    let (calibration, held_out) = errors(&both);
    assert!(
        calibration <= budget && held_out <= budget,
        "{calibration}, {held_out}"
    );
    let reverted = both.reverted.as_ref().unwrap();
    assert_eq!(reverted.error, large);
    // No more layers than needed are reverted, and those are in full precision.
    let full: Vec<&String> = both.layers(Precision::Full).collect();
    assert!(reverted.layers.iter().eq(full) && !some.is_empty());
    assert_eq!(all.len() - some.len(), reverted.layers.len());
}

#[test]
fn what_is_slower_stays_as_it_is() {
    // TinyViT32's second layers of the feed-forward network have more inputs than outputs.
    let (decision, _) = decided(1.0, |[_, k, n]| if k > n { [1, 2, 1] } else { [2, 1, 2] });
    for choice in &decision.choices {
        let second = choice.layers.iter().any(|layer| layer.ends_with("fc2"));
        let expected = if second { Precision::Full } else { Precision::Int8 };
        assert_eq!(choice.precision, expected, "{:?}", choice.layers);
    }
    assert!(count(&decision, Precision::Full) > 0 && count(&decision, Precision::Int8) > 0);
}

#[test]
fn precisions_are_mixed() {
    // Each precision is fastest for some layers, and FP8 has the larger errors.
    let times = |[_, k, n]: [usize; 3]| if k > n { [9, 8, 1] } else { [9, 1, 8] };
    let (all, replaced) = decided(1.0, times);
    for choice in &all.choices {
        let second = choice.layers.iter().any(|layer| layer.ends_with("fc2"));
        let expected = if second { Precision::Fp8 } else { Precision::Int8 };
        assert_eq!(choice.precision, expected, "{:?}", choice.layers);
        assert!(choice.candidates[1].error > choice.candidates[0].error);
    }
    let float8 = |of: &&Replacement| matches!(of, Replacement::Float8 { .. });
    assert_eq!(
        replaced.values().filter(float8).count(),
        count(&all, Precision::Fp8)
    );
    // Write one file, with a quantisation group for each precision.
    let directory = tempfile::tempdir().unwrap();
    let checkpoint = Checkpoint::open(None).unwrap();
    let unquantised = ["head".to_owned()];
    checkpoint
        .write(directory.path(), Format::Full, &replaced, &unquantised)
        .unwrap();
    let config = std::fs::read(directory.path().join("config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_slice(&config).unwrap();
    let config = &config["quantization_config"];
    assert_eq!(config["format"], "mixed-precision");
    for (group, precision) in [("group_0", Precision::Int8), ("group_1", Precision::Fp8)] {
        let targets = config["config_groups"][group]["targets"].as_array().unwrap();
        assert_eq!(targets.len(), count(&all, precision));
    }
    let read = load(directory.path(), &LoadOptions::default()).unwrap();
    let found = read.info.quantization.unwrap();
    let (int8, float8) = (count(&all, Precision::Int8), count(&all, Precision::Fp8));
    assert_eq!((found.int8, found.float8), (int8, float8));
    // With a smaller budget, some layers that FP8 makes fastest are in int8 or unchanged.
    let (some, _) = decided(all.calibration.error * 0.7, times);
    assert!(some.calibration.within(all.calibration.error * 0.7));
    assert!(count(&some, Precision::Fp8) < count(&all, Precision::Fp8));
}

#[test]
fn bf16_is_chosen_where_it_is_faster_or_int8_costs_too_much() {
    // Each precision is fastest for some layers.
    let mixed = |[_, k, n]: [usize; 3]| if k > n { [9, 9, 1] } else { [9, 1, 8] };
    let (all, replaced) = decided_on_cpu(1.0, mixed);
    for choice in &all.choices {
        let second = choice.layers.iter().any(|layer| layer.ends_with("fc2"));
        let expected = if second { Precision::Bf16 } else { Precision::Int8 };
        assert_eq!(choice.precision, expected, "{:?}", choice.layers);
        let [int8, bf16] = &choice.candidates[..] else {
            panic!("{choice:?}")
        };
        assert_eq!(
            [int8.precision, bf16.precision],
            [Precision::Int8, Precision::Bf16]
        );
        // bf16 has eight significant bits; int8 levels span a whole row.
        assert!(0.0 < bf16.error && bf16.error < int8.error, "{choice:?}");
    }
    let in_bf16 = |of: &Replacement| matches!(of, Replacement::Bf16(_));
    assert!(
        replaced
            .iter()
            .all(|(name, of)| in_bf16(of) == name.ends_with("fc2.weight"))
    );

    // bf16 is used where int8 is faster but its error does not fit.
    let (bf16, replaced) = decided_on_cpu(1.0, |_| [9, 9, 2]);
    assert_eq!(count(&bf16, Precision::Bf16), 16);
    // Channels are balanced only for int8.
    assert!(replaced.len() == 16 && replaced.values().all(in_bf16));
    let largest = |decision: &Decision| {
        decision
            .held_out
            .as_ref()
            .unwrap()
            .error
            .max(decision.calibration.error)
    };
    let budget = 1.5 * largest(&bf16);
    let (some, replaced) = decided_on_cpu(budget, |_| [9, 1, 2]);
    assert!(largest(&some) <= budget);
    let counts = [Precision::Full, Precision::Int8, Precision::Bf16].map(|precision| count(&some, precision));
    println!("{counts:?} layers as they were, in int8, in bf16: {some:?}");
    assert!(counts[2] > 0 && counts.iter().sum::<usize>() == 16);
    assert_eq!(replaced.values().filter(|of| in_bf16(of)).count(), counts[2]);
}

#[test]
fn three_precisions_are_one_model() {
    let (decision, replaced) = decided_on_cpu(1.0, |[_, k, n]| match k.cmp(&n) {
        std::cmp::Ordering::Greater => [9, 9, 1],
        std::cmp::Ordering::Less => [9, 1, 9],
        std::cmp::Ordering::Equal => [1, 9, 9],
    });
    // The numbers of projections, of QKV and FC1, and of FC2.
    let counts =
        [Precision::Full, Precision::Int8, Precision::Bf16].map(|precision| count(&decision, precision));
    assert_eq!(counts, [4, 8, 4]);
    let directory = tempfile::tempdir().unwrap();
    let checkpoint = Checkpoint::open(None).unwrap();
    let unquantised = ["head".to_owned()];
    checkpoint
        .write(directory.path(), Format::Int8, &replaced, &unquantised)
        .unwrap();
    let config = std::fs::read(directory.path().join("config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_slice(&config).unwrap();
    let in_bf16: Vec<&str> = config["bf16_layers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|layer| layer.as_str().unwrap())
        .collect();
    assert!(in_bf16.iter().copied().eq(decision.layers(Precision::Bf16)));
    // Other readers of int8 ignore these layers as linear layers that are not quantised.
    let ignored = config["quantization_config"]["ignore"].as_array().unwrap();
    assert!(
        in_bf16
            .iter()
            .all(|layer| ignored.iter().any(|ignored| ignored == layer))
    );
    let read = load(directory.path(), &LoadOptions::default()).unwrap();
    let found = read.info.quantization.as_ref().unwrap();
    assert_eq!((found.int8, found.bf16), (8, 4));
    assert_eq!(
        found.to_string(),
        "int-quantized: 8 weights in int8, multiplied in int8; 4 weights in bf16, multiplied in bf16 on the CPU"
    );
    let roundings: Vec<Option<Rounding>> = read
        .graph
        .nodes()
        .iter()
        .filter_map(|node| match &node.op {
            Op::Linear(spec) if node.name.starts_with("blocks.") => Some(spec.rounding),
            _ => None,
        })
        .collect();
    let of = |which: fn(&Option<Rounding>) -> bool| roundings.iter().filter(|of| which(of)).count();
    assert_eq!(of(Option::is_none), 4);
    assert_eq!(of(|rounding| *rounding == Some(Rounding::Bf16)), 4);
    // The file gives the measured error.
    let images: Vec<Vec<u8>> = vec![(0..32 * 32 * 3).map(|i| (i * i * 3 % 251) as u8).collect()];
    let full = on_cpu(tinyvit32(&LoadOptions::default()).unwrap()).unwrap();
    let reference = Reference::new(&full, &images).unwrap();
    let [written, measured] = [
        read,
        checkpoint
            .changed(Format::Int8, &replaced, &[], &LoadOptions::default())
            .unwrap(),
    ]
    .map(|model| reference.fidelity(&on_cpu(model).unwrap()).unwrap().error);
    assert!(
        written > 0.0 && written.to_bits() == measured.to_bits(),
        "{written} {measured}"
    );
}
